"""COMEDY: the memories of all sessions are compressed into one text of three parts, and the reply sees that text.

COMEDY (Chen et al., 2024), a baseline of Theanine (section 3.2) and SeCom: an LLM summarises session-level memories and
compresses all of them into short events, a portrait of the user (behaviour, emotion and the like) and the relationship
between user and bot; no search. Knows nothing of an index.

Differs from the paper: one backbone that is not fine-tuned does both tasks. When the memories outgrow its context, the
oldest are left out and the text so far stands in for them.
"""

import json
from collections import Counter

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.llm.schemas import answer, many, text
from localmem.llm.structured_output import says, unusable, usable
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.text.dialogue import dated
from localmem.text.history import newest
from localmem.text.prose import names
from localmem.text.shown import statements
from localmem.text.summarize import Summarizer
from localmem.types import AddUnit, Change, Prompt, Recall, Session, SetNote, Unit

PARTS = ("portrait", "relationship", "events")
_COMPRESS = "comedy/compress"


class Comedy(Memory):
    """Units are the session memories, notes the three parts, of at most so many sentences of `longest` characters."""

    name = "comedy"

    def __init__(
        self,
        *,
        llm: LLM,
        summarize: Summarizer,
        portrait: int,
        relationship: int,
        events: int,
        longest: int,
        bank: Bank | None = None,
    ) -> None:
        super().__init__(bank=bank)
        self._llm = llm
        self._summarize = summarize
        limits = (portrait, relationship, events)
        self._form = answer(**{part: many(text(longest), limit) for part, limit in zip(PARTS, limits, strict=True)})
        self._fallbacks: Counter[str] = Counter()

    @property
    def fallbacks(self) -> Counter[str]:
        return self._fallbacks + self._summarize.fallbacks

    def recall(self, session: Session) -> Recall:
        return Recall(self._compressed())

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        held = {unit.key for unit in self.bank.live()}
        found = statements(session, self._summarize(session.turns), "memory")
        new = [unit for unit in found if unit.key not in held]
        notes = self._compress(session, new) if new else {}
        time = session.turns[-1].time
        return [*(AddUnit(unit, time) for unit in new), *(SetNote(name, text, time) for name, text in notes.items())]

    def _compressed(self) -> str:
        parts = {part: self.bank.notes.get(part, "") for part in PARTS}
        return load("comedy/recall").section("memory", **parts)

    def _compress(self, session: Session, new: list[Unit]) -> dict[str, str]:
        """The three parts, from all session memories; none where the answer cannot be used: they stay as they were."""
        user, assistant = names(session.turns)
        memories = [*self.bank.live(), *new]
        before = self._compressed()
        held, said = self._llm.count_tokens([before, dated(memories)])
        room = (self._llm.context_length - load(_COMPRESS).max_tokens) * 3 // 4
        if said > room:
            shown = newest(memories, max(0, room - held) * 2 // 3, self._llm.count_tokens)  # a third is for the dates
            unusable(_COMPRESS, f"the newest {len(shown)} of {len(memories)} memories fit", self._fallbacks)
        else:
            shown, before = memories, ""
        values = {"before": before, "memories": dated(shown), "user": user, "assistant": assistant}
        prompt = render(_COMPRESS, form=self._form, **values)
        (completion,) = usable(self._llm, [prompt], self._fallbacks)
        return {} if completion is None else self._read(prompt, completion.text)

    def _read(self, prompt: Prompt, answered: str) -> dict[str, str]:
        match json.loads(answered):
            case {"portrait": list(portrait), "relationship": list(relationship), "events": list(events)}:
                return {
                    part: "\n".join(" ".join(i.split()) for i in items if isinstance(i, str) and says(i, prompt))
                    for part, items in zip(PARTS, (portrait, relationship, events), strict=True)
                }
        unusable(_COMPRESS, f"its answer {answered!r:.80} lacks a part", self._fallbacks)
        return {}
