"""MemoryBank: dated daily summaries, a global portrait, and pieces that fade unless they are recalled.

MemoryBank (Zhong et al., 2023), a baseline of Recursively Summarizing (section 4 and appendix A, Figure 10). At session
end each day of it is summarised, the user's personality is inferred from it, and both go into global texts: the events
so far and the portrait. Exchanges and daily summaries are pieces that are searched. Every piece has a
strength S, 1 at first; t days after it was learned or last recalled its retention is exp(-t/S), and recall adds 1 to S
and sets t back to 0. A piece whose retention is below a threshold is forgotten.

Follows the paper, not its published code, where the two differ: that code computes exp(-t*S/5), by which a piece fades
faster the more often it is recalled.

Differs from the paper:
- It gives no threshold, so that nothing is forgotten unless one is set; forgetting is by it alone, not by chance.
- Of the pieces that search finds, those with the highest score times retention are shown.
- A log that is read strengthens what its questions recall, as the conversation would have, when its session ends.
- A day of several sessions has a summary for each of them.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from localmem.bank import Bank
from localmem.grounding.gate import Gate
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.retrieval.base import Scope
from localmem.summaries.summarize import SummaryRequest, generate_prose, summarize_all
from localmem.systems import Options, Parts, System
from localmem.text.dialogue import add_units, by_time, dated_lines, day, exchange_units, new_unit, prompt_names
from localmem.types import Change, Exchange, Hit, MarkUnit, Recall, RetireUnit, Session, SetNote, Turn, Unit

EVENTS = "events"
PORTRAIT = "portrait"
FADING = ("exchange", "day")  # what people add by hand, a note, stays
_STRENGTH = "strength"
_RECALLED = "recalled"  # seconds since 1970, UTC
_DAY = timedelta(days=1)

Marks = Mapping[tuple[str, str], float]  # by unit and name


def retention(strength: float, days: float) -> float:
    """exp(-t/S): the retention of a piece `days` after it was last recalled."""
    return math.exp(-max(0.0, days) / strength)


class MemoryBankOptions(Options):
    """`k` pieces are shown out of the `pool` that a search returns.

    `strength` is that of a new piece, `gain` what each recall adds. At a `threshold` of 0 nothing is forgotten.
    """

    k: PositiveInt
    pool: PositiveInt
    strength: PositiveFloat
    gain: NonNegativeFloat
    threshold: float = Field(ge=0, lt=1)


class MemoryBank(Memory):
    """Pieces (exchanges and daily summaries) are units; events and portrait are notes."""

    name = "memorybank"

    def __init__(self, parts: Parts, options: MemoryBankOptions, bank: Bank | None = None) -> None:
        super().__init__(bank=bank, retriever=parts.new_retriever())
        self._llm = parts.llm
        self._options = options

    def recall(self, session: Session) -> Recall:
        last = session.turns[-1]
        notes = self.bank.notes
        hits = by_time(self._nearest(last.text, last.time))
        events, portrait = notes.get(EVENTS, ""), notes.get(PORTRAIT, "")
        if not (hits or events or portrait):
            return Recall()
        pieces = dated_lines(hit.unit for hit in hits)
        text = load("memorybank/recall").section("memory", portrait=portrait, events=events, found=pieces)
        return Recall(text, tuple(hits))

    def observe(self, exchange: Exchange) -> list[Change]:
        """Strengthens what was recalled, and restarts its clock."""
        turns = exchange.turns()
        if exchange.recall is None or not turns:
            return []
        time = turns[-1].time
        recalled = [hit.unit for hit in exchange.recall.hits if self.bank.is_live(hit.unit.id)]
        return [change for unit in recalled for change in self._strengthen_unit(unit, time, self.bank.marks)]

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        time = session.turns[-1].time
        strengthened = self._strengthen_by(session)
        marks = dict(self.bank.marks) | {(change.unit, change.mark): change.value for change in strengthened}
        days = [list(turns) for _, turns in groupby(session.turns, key=lambda turn: turn.time.date())]
        requests = [SummaryRequest(f"memorybank/{task}", turns) for task in ("day", "insight") for turns in days]
        gate = Gate(session.turns, self.fallbacks)
        texts = summarize_all(self._llm, requests, gate)
        day_units = _day_units(session, days, texts[: len(days)])
        return [
            *strengthened,
            *add_units([*exchange_units(session), *day_units]),
            *self._notes(session, day_units, texts[len(days) :], gate),
            *self._forget(time, marks),
            *gate.refusals,
        ]

    def _nearest(self, query: str, now: datetime) -> list[Hit]:
        """The `k` hits of highest score times retention that are not forgotten, best first."""
        options = self._options
        hits = self.search(query, max(options.k, options.pool), Scope(now=now))
        retentions = [(hit, self._retention(hit.unit, now, self.bank.marks)) for hit in hits]
        weighted = [
            Hit(hit.unit, max(0.0, hit.score) * share) for hit, share in retentions if share >= options.threshold
        ]
        return sorted(weighted, key=lambda hit: -hit.score)[: options.k]

    def _retention(self, unit: Unit, now: datetime, marks: Marks) -> float:
        if unit.kind not in FADING:
            return 1.0
        since = marks.get((unit.id, _RECALLED), unit.learned.timestamp())
        strength = marks.get((unit.id, _STRENGTH), self._options.strength)
        return retention(strength, (now.timestamp() - since) / _DAY.total_seconds())

    def _strengthen_by(self, session: Session) -> list[MarkUnit]:
        """What the session's questions strengthen that no reply's recall has: those of a log that is read."""
        marks = dict(self.bank.marks)
        changes: list[MarkUnit] = []
        for turn in session.turns:
            if turn.role != "user" or not turn.text.strip():
                continue
            recalled = [hit.unit for hit in self._nearest(turn.text, turn.time) if hit.unit.kind in FADING]
            for unit in (each for each in recalled if marks.get((each.id, _RECALLED), 0.0) < turn.time.timestamp()):
                new = self._strengthen_unit(unit, turn.time, marks)
                marks |= {(change.unit, change.mark): change.value for change in new}
                changes += new
        return changes

    def _strengthen_unit(self, unit: Unit, time: datetime, marks: Marks) -> list[MarkUnit]:
        strength = marks.get((unit.id, _STRENGTH), self._options.strength)
        return [
            MarkUnit(unit.id, _STRENGTH, strength + self._options.gain, time),
            MarkUnit(unit.id, _RECALLED, time.timestamp(), time),
        ]

    def _notes(self, session: Session, days: Sequence[Unit], insights: Sequence[str], gate: Gate) -> list[Change]:
        """The global texts with this session included, asked at once; an empty answer leaves its text unchanged."""
        names = prompt_names(session.turns)
        news = {EVENTS: dated_lines(days), PORTRAIT: "\n".join(text for text in insights if text)}
        fresh = {name: text for name, text in news.items() if text}
        prompts = [
            render(f"memorybank/{name}", before=self.bank.notes.get(name, ""), news=text, **names)
            for name, text in fresh.items()
        ]
        texts = generate_prose(self._llm, prompts, gate)
        time = session.turns[-1].time
        return [SetNote(name, text, time) for name, text in zip(fresh, texts, strict=True) if text]

    def _forget(self, now: datetime, marks: Marks) -> list[Change]:
        threshold = self._options.threshold
        retentions = [(unit, self._retention(unit, now, marks)) for unit in self.bank.live()]
        return [
            RetireUnit(unit.id, "memorybank/forgetting", f"retention {share:.2g} is below {threshold:g}", now)
            for unit, share in retentions
            if share < threshold
        ]


def _day_units(session: Session, days: Sequence[Sequence[Turn]], texts: Sequence[str]) -> list[Unit]:
    """The summary of each day that has one; its key names the day, so that a search for the date finds it."""
    return [
        new_unit(session, f"day{number}", text, kind="day", turns=turns, key=f"{day(turns[0].time)}: {text}")
        for number, (turns, text) in enumerate(zip(days, texts, strict=True))
        if text
    ]


SYSTEM = System(
    "memorybank",
    MemoryBankOptions,
    MemoryBank,
    "days and a portrait; what is not recalled fades",
    "at each session's end",
)
