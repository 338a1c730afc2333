"""SumMem: the past is summarised anew for every request, by what matters to it.

SeCom's baseline (section 3): summaries of past dialogue relevant to the user's request are generated when it comes, and
are its context. Past dialogue is kept word for word, a unit a turn, and nothing is worked out when a session ends.
SumMem-MSC, CREEM's baseline of a similar name, is a setting of all memories. Knows nothing of search.

Differs from the paper: past dialogue longer than the model's context is read in parts, all asked at once, `parts` of
them at most, the newest; their sentences are shown part after part.
"""

import json
from collections import Counter
from collections.abc import Sequence

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.llm.schemas import answer, many, text
from localmem.llm.structured_output import unusable, usable
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.text.dialogue import packed
from localmem.text.history import utterances, written
from localmem.types import AddUnit, Change, Completion, Hit, Recall, Session, Unit

_PROMPT = "summem/summarize"


class SumMem(Memory):
    """At most `sentences` of `longest` characters for each part of the past. `fallbacks` counts unusable answers."""

    name = "summem"

    def __init__(self, *, llm: LLM, sentences: int, longest: int, parts: int, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = llm
        self._parts = parts
        self._form = answer(memories=many(text(longest), sentences))
        self.fallbacks: Counter[str] = Counter()

    def recall(self, session: Session) -> Recall:
        request = session.turns[-1].text
        runs = self._runs(list(self.bank.live()), request)
        prompts = [render(_PROMPT, form=self._form, history=written(run), request=request) for run in runs]
        found = [self._read(completion) for completion in usable(self._llm, prompts, self.fallbacks)]
        shown = dict.fromkeys(sentence for sentences in found for sentence in sentences)
        behind = [unit for run, sentences in zip(runs, found, strict=True) if sentences for unit in run]
        return Recall("\n".join(shown), tuple(Hit(unit, 0.0) for unit in behind))

    def end_session(self, session: Session) -> list[Change]:
        return [AddUnit(unit, unit.learned) for unit in utterances(session)]

    def _runs(self, said: Sequence[Unit], request: str) -> list[tuple[Unit, ...]]:
        """The newest parts of the past, each as long as the model can read beside the request."""
        *sizes, asked = self._llm.count_tokens([*(f"{unit.text}\n" for unit in said), request])
        room = self._llm.context_length - load(_PROMPT).max_tokens - asked
        runs = packed(said, sizes, max(1, room * 3 // 4))  # a quarter is left for instructions and dates
        if len(runs) > self._parts:
            unusable(_PROMPT, f"the newest {self._parts} of {len(runs)} parts of the past are read", self.fallbacks)
        return runs[-self._parts :]

    def _read(self, completion: Completion | None) -> list[str]:
        if completion is None:
            return []
        match json.loads(completion.text):
            case {"memories": list(items)}:
                cleaned = [" ".join(item.split()) for item in items if isinstance(item, str)]
                return [sentence for sentence in cleaned if sentence]
        unusable(_PROMPT, f"its answer {completion.text!r:.80} holds no list of memories", self.fallbacks)
        return []
