"""All memories: each session becomes sentences or a summary, and all of them are shown. Nothing is searched or removed.

Three baselines of the papers:

- "All memories" (Theanine, section 3.2, Table 1): sentences drawn from each session. "With memory update" is CareCall
  over all its sentences (variant all_memories/updated).
- SumMem-MSC (CREEM, section 3.2), `each: utterance`: a persona sentence, or none, for each utterance.
- ReBot (CREEM, section 3.2; Conversation Chronicles): one summary for each session, serving both speakers.

Differs from the papers: what the context has no room for is left out from the oldest on. The summarisers of SumMem-MSC
(BART) and ReBot (T5-base) are trained models; here the backbone takes their place unless `summarizer` names one.
"""

from itertools import chain
from typing import Any, Literal

from pydantic import PositiveInt

from localmem.bank import Bank
from localmem.grounding.gate import Gate
from localmem.llm.base import LLM
from localmem.llm.structured_output import answer_format, array, generate_usable, string
from localmem.memory import Memory
from localmem.prompts import render
from localmem.summaries.summarize import Summarizer, SummaryRequest, read_memories, summarize_all
from localmem.systems import Options, Parts, System
from localmem.text.dialogue import add_units, line, new_unit, recall_units, select_fitting, statement_units
from localmem.types import Change, Recall, Session, Turn, Unit


class AllMemoriesOptions(Options):
    """What a sentence is about, its most characters, and what writes it; null: the backbone."""

    each: Literal["session", "utterance"]
    longest: PositiveInt
    summarizer: str | None


class ReBotOptions(Options):
    """What writes the summaries; null: the backbone."""

    summarizer: str | None


def _writer(parts: Parts, summarizer: str | None) -> LLM:
    return parts.load_summarizer(summarizer, parts.llm) if summarizer else parts.llm


class _AllShown(Memory):
    """Every unit of the bank is shown with its date, as far as they fit."""

    _llm: LLM

    def recall(self, session: Session) -> Recall:
        units = list(self.bank.live())
        return recall_units(select_fitting(self._llm, session, self.response_prompt, units, self.fallbacks))


class AllMemories(_AllShown):
    """One unit a sentence, about a session or about an utterance."""

    name = "all_memories"

    def __init__(self, parts: Parts, options: AllMemoriesOptions, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = _writer(parts, options.summarizer)
        self._each = options.each
        self._summarize = Summarizer(self._llm, fallbacks=self.fallbacks)
        self._form = answer_format(memories=array(string(options.longest), 1))

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        gate = Gate(session.turns, self.fallbacks, (unit.key for unit in self.bank.live()))
        units = self._personas(session, gate) if self._each == "utterance" else self._sentences(session, gate)
        return [*add_units(units), *gate.refusals]

    def _sentences(self, session: Session, gate: Gate) -> list[Unit]:
        return statement_units(session, self._summarize(session.turns, gate), "sentence")

    def _personas(self, session: Session, gate: Gate) -> list[Unit]:
        """What each utterance says about its speaker; all utterances are asked about at once."""
        previous = chain([""], (line(turn) for turn in session.turns))
        prompts = [
            render("all_memories/persona", form=self._form, before=before, said=line(turn), speaker=turn.speaker)
            for before, turn in zip(previous, session.turns, strict=False)
        ]
        answers = generate_usable(self._llm, prompts, self.fallbacks)
        first_turns: dict[str, Turn] = {}
        for turn, prompt, completion in zip(session.turns, prompts, answers, strict=True):
            for sentence in gate.admit(prompt, read_memories(prompt, completion, self.fallbacks)[:1]):
                first_turns.setdefault(sentence, turn)
        return [
            new_unit(session, f"persona{number}", sentence, kind="persona", turns=[turn], speaker=turn.speaker)
            for number, (sentence, turn) in enumerate(first_turns.items())
        ]


class ReBot(_AllShown):
    """One unit a session: its summary."""

    name = "rebot"

    def __init__(self, parts: Parts, options: ReBotOptions, bank: Bank | None = None) -> None:
        super().__init__(bank=bank)
        self._llm = _writer(parts, options.summarizer)

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        gate = Gate(session.turns, self.fallbacks)
        (summary,) = summarize_all(self._llm, [SummaryRequest("rebot/summarize", session.turns)], gate)
        return [*add_units(statement_units(session, [summary] if summary else [], "summary")), *gate.refusals]


_END = "at each session's end"

SYSTEMS: tuple[System[Any], ...] = (
    System("all_memories", AllMemoriesOptions, AllMemories, "sentences drawn from each session, all shown", _END),
    System("rebot", ReBotOptions, ReBot, "a summary of each session, all shown", _END),
)
