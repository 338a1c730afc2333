"""COMEDY: the memories of all sessions are compressed into one text of three parts, and the reply sees that text.

COMEDY (Chen et al., 2024), a baseline of Theanine (section 3.2) and SeCom: an LLM summarises session-level memories and
compresses all of them into short events, a portrait of the user (behaviour, emotion and the like) and the relationship
between user and bot; no search.

Differs from the paper: one backbone that is not fine-tuned does both tasks. When the memories outgrow its context, the
oldest are left out and the previous text stands in for them.
"""

import json

from pydantic import PositiveInt

from localmem.bank import Bank
from localmem.grounding.gate import Gate
from localmem.llm.structured_output import answer_format, array, count_fallback, generate_usable, string
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.summaries.summarize import Summarizer
from localmem.systems import Options, Parts, System
from localmem.text.dialogue import add_units, dated_lines, newest_units, prompt_names, statement_units
from localmem.types import Change, Prompt, Recall, Session, SetNote, Unit

PARTS = ("portrait", "relationship", "events")
_COMPRESS = "comedy/compress"


class ComedyOptions(Options):
    """The most sentences of each part, and the most characters of a sentence."""

    portrait: PositiveInt
    relationship: PositiveInt
    events: PositiveInt
    longest: PositiveInt


class Comedy(Memory):
    """Units are the session memories, notes the three parts. `fallbacks` counts, by prompt, unusable answers."""

    name = "comedy"

    def __init__(self, parts: Parts, options: ComedyOptions, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = parts.llm
        self._summarize = Summarizer(parts.llm, prompt="comedy/summarize", fallbacks=self.fallbacks)
        limits = options.model_dump(include=set(PARTS))
        self._form = answer_format(**{part: array(string(options.longest), limits[part]) for part in PARTS})

    def recall(self, session: Session) -> Recall:
        return Recall(self._compressed_text())

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        gate = Gate(session.turns, self.fallbacks, (unit.key for unit in self.bank.live()))
        new = statement_units(session, self._summarize(session.turns, gate), "memory")
        parts = Gate(session.turns, self.fallbacks)  # a part may say what a memory says
        notes = self._compress(session, new, parts) if new else {}
        time = session.turns[-1].time
        notes_set = [SetNote(name, text, time) for name, text in notes.items()]
        return [*add_units(new), *notes_set, *gate.refusals, *parts.refusals]

    def _compressed_text(self) -> str:
        parts = {part: self.bank.notes.get(part, "") for part in PARTS}
        return load("comedy/recall").section("memory", **parts)

    def _compress(self, session: Session, new: list[Unit], gate: Gate) -> dict[str, str]:
        """The three parts, from all session memories; empty when the answer is unusable: the notes stay unchanged."""
        memories = [*self.bank.live(), *new]
        before = self._compressed_text()
        text_size, memory_size = self._llm.count_tokens([before, dated_lines(memories)])
        room = (self._llm.context_length - load(_COMPRESS).max_tokens) * 3 // 4
        if memory_size > room:
            budget = max(0, room - text_size) * 2 // 3  # a third is for the dates
            fitting = newest_units(memories, budget, self._llm.count_tokens)
            count_fallback(_COMPRESS, f"the newest {len(fitting)} of {len(memories)} memories fit", self.fallbacks)
        else:
            fitting, before = memories, ""
        names = prompt_names(session.turns)
        prompt = render(_COMPRESS, form=self._form, before=before, memories=dated_lines(fitting), **names)
        (completion,) = generate_usable(self._llm, [prompt], self.fallbacks)
        return {} if completion is None else self._read(prompt, completion.text, gate)

    def _read(self, prompt: Prompt, text: str, gate: Gate) -> dict[str, str]:
        match json.loads(text):
            case {"portrait": list(), "relationship": list(), "events": list()} as lists:
                texts = {part: [item for item in lists[part] if isinstance(item, str)] for part in PARTS}
                admitted = {part: gate.admit(prompt, texts[part]) for part in PARTS}
                if any(texts.values()) and not any(admitted.values()):
                    return {}  # nothing but refusals: the notes stay unchanged
                return {part: "\n".join(admitted[part]) for part in PARTS}
        count_fallback(_COMPRESS, f"its answer {text!r:.80} lacks a part", self.fallbacks)
        return {}


SYSTEM = System(
    "comedy", ComedyOptions, Comedy, "portrait, relationship and events, compressed", "at each session's end"
)
