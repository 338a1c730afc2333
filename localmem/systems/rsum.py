"""LLM-Rsum: memory is one text, rewritten at the end of every session from itself and the session.

Recursively Summarizing (section 3.2): M_i = LLM(H_i, M_{i-1}), at most 20 sentences about both speakers, starting from
nothing (eq. 2, Figure 12); the reply sees the dialogue and M (eq. 3). Temperature 0 (section 4). Settings: 0, 2 or 3
examples in the reply's prompt (Table 5), the 5 past utterances nearest to the user's turn next to the memory (section
6.4, Table 6; BM25 or dense, by the injected retriever), and all past sessions next to it, for backbones of long context
(Table 7).

Past dialogue is stored only while one of the last two is set: then each turn of an ended session becomes a unit, to be
searched or shown. Of the past sessions the newest turns are shown, as many as the context has room for next to the
dialogue. When the setting is switched on later, `localmem rebuild` adds earlier sessions.

Differs from the paper: a session longer than the model's context is read in parts, each updating the memory in turn,
and the limit is enforced on the answer instead of being only requested. The examples are ours, from no data set.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from localmem.bank import Bank
from localmem.errors import BadSettings
from localmem.grounding.gate import Gate
from localmem.llm.base import LLM
from localmem.llm.structured_output import count_fallback
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.retrieval.base import Retriever, Scope
from localmem.systems import Options, Parts, System
from localmem.text.dialogue import (
    UTTERANCE,
    add_names,
    add_units,
    by_time,
    dated_lines,
    history_budget,
    history_text,
    newest_units,
    split_turns,
    transcript,
    utterance_units,
)
from localmem.text.parse import complete_sentences
from localmem.types import Change, Hit, Prompt, Recall, Session, SetNote, Unit

NOTE = "summary"
_UPDATE = "rsum/update"


class RecursiveSummary(Memory):
    """One note, at most `limit` sentences long.

    `examples` of the reply's prompt: 0, 2 or 3. `retrieve` past utterances are shown next to the note (more than 0
    needs a `retriever`), and with `long_context` all that fit. `fallbacks` counts, by prompt, answers that were
    unusable or cut.
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
            raise BadSettings(f"rsum cannot retrieve {retrieve} utterances without a retriever; pass one")
        super().__init__(bank=bank, retriever=retriever if retrieve else None)
        self._llm = llm
        self._limit = limit
        self._retrieve = retrieve
        self._long_context = long_context
        if examples:
            self.response_prompt = _reply_prompt(examples)

    @property
    def _longest(self) -> int:
        """How many tokens the memory may have. Asked late, for a memory is made before its model is loaded."""
        longest = load(_UPDATE).max_tokens  # of 20 sentences
        return max(longest, min(longest * self._limit // 20, self._llm.context_length // 2))

    def recall(self, session: Session) -> Recall:
        note = self.bank.notes.get(NOTE, "")
        hits = self._nearest(session)
        history = self._past(session, note, hits)
        ids = {unit.id for unit in history}
        hits = [hit for hit in hits if hit.unit.id not in ids]
        if not hits and not history:
            return Recall(text=note)
        text = load("rsum/recall").section(
            "memory", memory=note, found=dated_lines(hit.unit for hit in hits), history=history_text(history)
        )
        return Recall(text=text, hits=(*hits, *(Hit(unit, 0.0) for unit in history)))

    def end_session(self, session: Session) -> list[Change]:
        memory = previous = self.bank.notes.get(NOTE, "")
        gate = Gate(session.turns, self.fallbacks)
        for run in split_turns(session.turns, self._room(previous), self._llm.count_tokens):
            prompt = render(_UPDATE, memory=memory, dialogue=transcript(run), limit=self._limit)
            memory = self._update(memory, add_names(prompt, session.turns), gate)
        note = [SetNote(NOTE, memory, session.turns[-1].time)] if memory != previous else []
        units = utterance_units(session) if self._retrieve or self._long_context else []
        return [*note, *add_units(units), *gate.refusals]

    def _nearest(self, session: Session) -> list[Hit]:
        query = session.turns[-1]
        return by_time(self.search(query.text, self._retrieve, Scope(now=query.time)) if self._retrieve else [])

    def _past(self, session: Session, note: str, hits: Sequence[Hit]) -> list[Unit]:
        """The newest past utterances that fit next to everything else; none outside long-context mode."""
        if not self._long_context:
            return []
        other = "\n".join([note, dated_lines(hit.unit for hit in hits)])
        past = [unit for unit in self.bank.live() if unit.kind == UTTERANCE]
        budget = history_budget(self._llm, session, self.response_prompt, other)
        return newest_units(past, budget, self._llm.count_tokens)

    def _update(self, memory: str, prompt: Prompt, gate: Gate) -> str:
        """The memory as the answer rewrites it; unchanged when that holds nothing that can be stored."""
        (completion,) = self._llm.generate([replace(prompt, max_tokens=self._longest)])
        if completion.finish == "length":
            count_fallback(prompt.name, f"its answer was cut off at {self._longest} tokens", self.fallbacks)
        sentences = gate.admit_sentences(prompt, complete_sentences(completion, at_least_one=True))
        if not sentences:
            return memory
        if len(sentences) > self._limit:
            reason = f"it wrote {len(sentences)} sentences, more than the limit of {self._limit}"
            count_fallback(prompt.name, reason, self.fallbacks)
        return "\n".join(sentences[: self._limit])

    def _room(self, memory: str) -> int:
        """Tokens of dialogue that fit next to the memory (as long as it may become), instructions and answer."""
        answer = self._longest
        (memory_size,) = self._llm.count_tokens([memory])
        room = self._llm.context_length - max(memory_size, answer) - 2 * answer  # the answer, and instructions as long
        return max(room, self._llm.context_length // 4)


def _reply_prompt(count: int) -> str:
    name = f"rsum/respond_{count}_examples"
    try:
        load(name)
    except BadSettings as error:
        raise BadSettings(f"rsum has no reply prompt with {count} examples; set examples to 0, 2 or 3") from error
    return name


class RsumOptions(Options):
    """The arguments of RecursiveSummary."""

    limit: PositiveInt
    examples: Literal[0, 2, 3]
    retrieve: NonNegativeInt
    long_context: bool


def _make(parts: Parts, options: RsumOptions, bank: Bank | None) -> Memory:
    retriever = parts.new_retriever() if options.retrieve else None
    return RecursiveSummary(llm=parts.llm, retriever=retriever, bank=bank, **options.model_dump(exclude={"show_times"}))


SYSTEM = System("rsum", RsumOptions, _make, "one summary, rewritten after each session", "at each session's end")
