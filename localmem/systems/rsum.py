"""LLM-Rsum: memory is one text, written anew at the end of every session from itself and the session.

Recursively Summarizing (section 3.2): M_i = LLM(H_i, M_{i-1}), at most 20 sentences about both speakers, starting from
nothing (eq. 2, Figure 12); the reply sees the dialogue and M (eq. 3). Temperature 0 (section 4). Settings: 0, 2 or 3
examples in the reply's prompt (Table 5), the 5 past utterances nearest to the user's turn beside the memory (section
6.4, Table 6; BM25 or dense, as the retriever that is injected), and all past sessions beside it, for backbones of long
context (Table 7). Knows nothing of how the text is stored or searched.

Past dialogue is at hand only while one of the last two is set: then a session's end keeps each turn as a unit, to be
searched or shown. Of the past sessions the newest turns are shown, as many as the context has room for beside the
dialogue; switched on later, `localmem rebuild` brings in what was said before.

Differs from the paper: a session longer than the model's context is read in parts, each updating the memory in turn,
and the limit is enforced on what comes back instead of being only asked for. The examples are ours, from no data set.
"""

from collections import Counter
from collections.abc import Sequence

from localmem.bank import Bank
from localmem.errors import BadSettings
from localmem.llm.base import LLM
from localmem.llm.structured_output import unusable
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.retrieval.base import Retriever, Scope
from localmem.text.dialogue import dated, parts, transcript
from localmem.text.history import UTTERANCE, newest, room, utterances, written
from localmem.text.parse import sentences
from localmem.types import AddUnit, Change, Hit, Recall, Session, SetNote, Unit

NOTE = "summary"


class RecursiveSummary(Memory):
    """One note, `limit` sentences long at most.

    `examples` of the reply's prompt: 0, 2 or 3. `retrieve` past utterances are shown beside the note (0: none; else a
    `retriever` is needed), and with `long_context` all that fit. `fallbacks` counts answers that were not taken as they
    came, by prompt.
    """

    name = "rsum"
    response_prompt = "rsum/respond"

    def __init__(
        self,
        *,
        llm: LLM,
        bank: Bank | None = None,
        limit: int = 20,
        examples: int = 0,
        retriever: Retriever | None = None,
        retrieve: int = 0,
        long_context: bool = False,
    ) -> None:
        if retrieve and retriever is None:
            raise BadSettings(f"rsum cannot retrieve {retrieve} utterances without a retriever; give it one")
        super().__init__(bank=bank, retriever=retriever if retrieve else None)
        self._llm = llm
        self._limit = limit
        self._retrieve = retrieve
        self._long_context = long_context
        self.fallbacks: Counter[str] = Counter()
        if examples:
            self.response_prompt = _with_examples(examples)  # type: ignore[misc]  # the class's own is the default

    def recall(self, session: Session) -> Recall:
        note = self.bank.notes.get(NOTE, "")
        hits = self._found(session)
        shown = self._past(session, note, hits)
        ids = {unit.id for unit in shown}
        hits = [hit for hit in hits if hit.unit.id not in ids]
        if not hits and not shown:
            return Recall(text=note)
        text = load("rsum/recall").section(
            "memory", memory=note, found=dated(hit.unit for hit in hits), history=written(shown)
        )
        return Recall(text=text, hits=(*hits, *(Hit(unit, 0.0) for unit in shown)))

    def end_session(self, session: Session) -> list[Change]:
        memory = old = self.bank.notes.get(NOTE, "")
        for run in parts(session.turns, self._room(old), self._llm.count_tokens):
            memory = self._update(memory, transcript(run))
        note = [SetNote(NOTE, memory, session.turns[-1].time)] if memory != old else []
        said = utterances(session) if self._retrieve or self._long_context else []
        return [*note, *(AddUnit(unit, unit.learned) for unit in said)]

    def _found(self, session: Session) -> list[Hit]:
        """The past utterances nearest to the last turn, in the order they were said."""
        asked = session.turns[-1]
        found = self.search(asked.text, self._retrieve, Scope(now=asked.time)) if self._retrieve else []
        return sorted(found, key=lambda hit: hit.unit.time)

    def _past(self, session: Session, note: str, hits: Sequence[Hit]) -> list[Unit]:
        """The newest past utterances that fit beside everything else; none but in long-context mode."""
        if not self._long_context:
            return []
        beside = "\n".join([note, dated(hit.unit for hit in hits)])
        said = [unit for unit in self.bank.live() if unit.kind == UTTERANCE]
        return newest(said, room(self._llm, session, self.response_prompt, beside), self._llm.count_tokens)

    def _update(self, memory: str, dialogue: str) -> str:
        prompt = render("rsum/update", memory=memory, dialogue=dialogue, limit=self._limit)
        (completion,) = self._llm.generate([prompt])
        found = sentences(completion.text)
        if completion.finish == "length":
            found = found[:-1] or found  # the last sentence was cut in the middle
        if not found:
            unusable(prompt.name, "its answer came back empty, so the memory stays as it was", self.fallbacks)
            return memory
        if len(found) > self._limit:
            unusable(prompt.name, f"it wrote {len(found)} sentences, of which {self._limit} are kept", self.fallbacks)
        return "\n".join(found[: self._limit])

    def _room(self, memory: str) -> int:
        """Tokens of dialogue that fit beside the memory (as long as it may become), the instructions and the answer."""
        file = load("rsum/update")
        (held,) = self._llm.count_tokens([memory])
        left = self._llm.context_length - max(held, file.max_tokens) - 2 * file.max_tokens  # one of them: instructions
        return max(left, self._llm.context_length // 4)


def _with_examples(count: int) -> str:
    """The reply prompt that shows so many examples. Raises BadSettings when no file does."""
    name = f"rsum/respond_{count}_examples"
    try:
        load(name)
    except BadSettings as error:
        raise BadSettings(f"rsum has no reply prompt with {count} examples; set examples to 0, 2 or 3") from error
    return name
