"""MemoryBank: dated daily summaries, a global portrait, and pieces that fade unless they are recalled.

MemoryBank (Zhong et al., 2023), a baseline of Recursively Summarizing (section 4 and appendix A, Figure 10). At session
end each day of it is summarised, what it tells about the user's personality is drawn from it, and both go into global
texts: the events so far and the portrait. Exchanges and daily summaries are pieces that are searched. Every piece has a
strength S, 1 at first; t days after it was learned or last recalled its retention is exp(-t/S), and recall adds 1 to S
and sets t back to 0. A piece whose retention is below a threshold is forgotten.

Follows the paper, not its published code, where the two differ: that code computes exp(-t*S/5), by which a piece fades
faster the more often it is recalled.

Differs from the paper: it gives no threshold, ours stands in configs/systems/memorybank.yaml, and forgetting is by the
threshold alone, not by chance. Of the pieces found by search those of highest score times retention are shown. A day
of several sessions has a summary for each of them.
"""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

from localmem.bank import Bank
from localmem.llm.base import LLM
from localmem.memory import Memory
from localmem.prompts import load, render
from localmem.retrieval.base import Retriever, Scope
from localmem.text.dialogue import dated, day, transcript
from localmem.text.prose import Ask, names, prose, summaries
from localmem.types import AddUnit, Change, Exchange, Hit, MarkUnit, Recall, RetireUnit, Session, SetNote, Turn, Unit

EVENTS = "events"
PORTRAIT = "portrait"
FADING = ("exchange", "day")  # what people add by hand, a note, stays
_STRENGTH = "strength"
_RECALLED = "recalled"  # seconds since 1970, UTC
_DAY = timedelta(days=1)


def retention(strength: float, days: float) -> float:
    """exp(-t/S): how much of a piece is left `days` after it was last recalled."""
    return math.exp(-max(0.0, days) / strength)


class MemoryBank(Memory):
    """Pieces (exchanges and daily summaries) and two notes. `k` pieces are shown out of `pool` that a search finds.

    `strength` is that of a new piece, `gain` what a recall adds. At a `threshold` of 0 nothing is forgotten.
    """

    name = "memorybank"

    def __init__(
        self,
        *,
        llm: LLM,
        retriever: Retriever,
        k: int,
        pool: int,
        strength: float,
        gain: float,
        threshold: float,
        bank: Bank | None = None,
    ) -> None:
        super().__init__(bank=bank, retriever=retriever)
        self._llm = llm
        self._k = k
        self._pool = max(k, pool)
        self._strength = strength
        self._gain = gain
        self._threshold = threshold
        self.fallbacks: Counter[str] = Counter()

    def recall(self, session: Session) -> Recall:
        last = session.turns[-1]
        notes = self.bank.notes
        hits = tuple(sorted(self._weighed(last.text, last.time), key=lambda hit: hit.unit.time))
        events, portrait = notes.get(EVENTS, ""), notes.get(PORTRAIT, "")
        if not (hits or events or portrait):
            return Recall()
        found = dated(hit.unit for hit in hits)
        text = load("memorybank/recall").section("memory", portrait=portrait, events=events, found=found)
        return Recall(text, hits)

    def observe(self, exchange: Exchange) -> list[Change]:
        """What was recalled is strengthened, and its clock starts anew."""
        turns = exchange.turns()
        if exchange.recall is None or not turns:
            return []
        time = turns[-1].time
        seen = [hit.unit for hit in exchange.recall.hits if self.bank.is_live(hit.unit.id)]
        return [change for unit in seen for change in self._strengthened(unit, time)]

    def end_session(self, session: Session) -> list[Change]:
        if not session.turns:
            return []
        time = session.turns[-1].time
        days = [list(turns) for _, turns in groupby(session.turns, key=lambda turn: turn.time.date())]
        told = [Ask("memorybank/day", turns) for turns in days]
        insights = [Ask("memorybank/insight", turns) for turns in days]
        written = summaries(self._llm, [*told, *insights], self.fallbacks)
        pieces = [*_exchanges(session), *_days(session, days, written[: len(days)])]
        return [
            *(AddUnit(piece, time) for piece in pieces),
            *self._notes(session, [piece for piece in pieces if piece.kind == "day"], written[len(days) :]),
            *self._forgotten(time),
        ]

    def _weighed(self, query: str, now: datetime) -> list[Hit]:
        """The `k` best by score and retention of those found that are not forgotten, best first."""
        found = [(hit, self._retention(hit.unit, now)) for hit in self.search(query, self._pool, Scope(now=now))]
        kept = [Hit(hit.unit, max(0.0, hit.score) * left) for hit, left in found if left >= self._threshold]
        return sorted(kept, key=lambda hit: -hit.score)[: self._k]

    def _retention(self, unit: Unit, now: datetime) -> float:
        if unit.kind not in FADING:
            return 1.0
        marks = self.bank.marks
        since = marks.get((unit.id, _RECALLED), unit.learned.timestamp())
        strength = marks.get((unit.id, _STRENGTH), self._strength)
        return retention(strength, (now.timestamp() - since) / _DAY.total_seconds())

    def _strengthened(self, unit: Unit, time: datetime) -> list[Change]:
        strength = self.bank.marks.get((unit.id, _STRENGTH), self._strength)
        return [
            MarkUnit(unit.id, _STRENGTH, strength + self._gain, time),
            MarkUnit(unit.id, _RECALLED, time.timestamp(), time),
        ]

    def _notes(self, session: Session, days: Sequence[Unit], insights: Sequence[str]) -> list[Change]:
        """The global texts with this session in them, both asked at once; one that came back empty stays as it was."""
        user, assistant = names(session.turns)
        news = {EVENTS: dated(days), PORTRAIT: "\n".join(text for text in insights if text)}
        fresh = {name: text for name, text in news.items() if text}
        prompts = [
            render(
                f"memorybank/{name}", before=self.bank.notes.get(name, ""), news=text, user=user, assistant=assistant
            )
            for name, text in fresh.items()
        ]
        texts = prose(self._llm, prompts, self.fallbacks)
        time = session.turns[-1].time
        return [SetNote(name, text, time) for name, text in zip(fresh, texts, strict=True) if text]

    def _forgotten(self, now: datetime) -> list[Change]:
        left = [(unit, self._retention(unit, now)) for unit in self.bank.live()]
        return [
            RetireUnit(unit.id, "memorybank/forgetting", f"retention {kept:.2g} is below {self._threshold:g}", now)
            for unit, kept in left
            if kept < self._threshold
        ]


def _exchanges(session: Session) -> list[Unit]:
    return [
        _piece(session, f"e{number}", "exchange", transcript(exchange.turns()), exchange.turns())
        for number, exchange in enumerate(session.exchanges())
    ]


def _days(session: Session, days: Sequence[Sequence[Turn]], texts: Sequence[str]) -> list[Unit]:
    """The summary of each day that has one; its key names the day, so that it is found by it."""
    return [
        _piece(session, f"day{number}", "day", text, turns, key=f"{day(turns[0].time)}: {text}")
        for number, (turns, text) in enumerate(zip(days, texts, strict=True))
        if text
    ]


def _piece(session: Session, place: str, kind: str, text: str, turns: Sequence[Turn], *, key: str = "") -> Unit:
    return Unit(
        id=f"{session.id}/{place}",
        text=text,
        key=key or text,
        kind=kind,
        speaker="",
        session=session.id,
        sources=tuple(turn.id for turn in turns),
        time=turns[0].time,
        learned=session.turns[-1].time,
    )
