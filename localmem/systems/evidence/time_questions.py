"""Questions about time and amounts: exchanges that fit what is asked are lifted, and what follows from them worked out.

Nothing is hidden: a lift only changes the order. Pure functions; does not depend on how exchanges are ranked before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta

from localmem.retrieval.base import Scope
from localmem.systems.evidence.ranking import lift_exchanges
from localmem.systems.evidence.units import STATEMENT
from localmem.times.annotate import spans_of
from localmem.times.parts import Relevance
from localmem.times.questions import Kind, Relation, TimeQuestion, is_sure, overlaps, read_question, stems
from localmem.times.workings import work_out
from localmem.types import DateRange, Hit, Unit, Working

Exchanges = list[list[Hit]]

# Added to the log-odds that an exchange answers. Chosen on the scenarios of authors a and b and on half of
# LongMemEval's temporal questions.
_IN_RANGE = 2.0  # it was told, or took place, in a time that the question names
_NAMES_TIME = 0.5  # it names a time, where one is asked for
_ORDER = 0.5  # the first of all, where the first is asked for; and the latest, where that is

_TIME_KINDS: frozenset[Kind] = frozenset({"when", "duration", "ago", "age", "order"})
_SHORT = timedelta(days=31)  # a longer time is no reason to look for what was told in it
_LATER = timedelta(days=2)  # people tell of it when it is over
_READ = 6  # exchanges from whose statements results are worked out


def lift_by_time(question: str, day: date, exchanges: Exchanges) -> Exchanges:
    """The exchanges, best first, after those were lifted that fit the times and the order that a question asks for."""
    wish = read_question(question, day)
    if not (wish.ranges or wish.order or wish.relation or _TIME_KINDS.intersection(wish.kinds)):
        return exchanges
    ranges = [*wish.ranges, *_related_days(wish.relation, exchanges)]
    positions = _positions(exchanges)
    lifts = [_lift(wish, ranges, hits, position) for hits, position in zip(exchanges, positions, strict=True)]
    return lift_exchanges(exchanges, lifts)


def scopes_of_times(question: str, scope: Scope) -> list[Scope]:
    """The scope, narrowed to each short time that a question names; none if it is narrowed to some time already."""
    if scope.now is None or scope.since or scope.until:
        return []
    ranges = read_question(question, scope.now.date()).ranges
    zone, short = scope.now.tzinfo, [days for days in ranges if days.last - days.first <= _SHORT]
    return [
        replace(
            scope,
            since=datetime.combine(days.first, time.min, zone),
            until=datetime.combine(days.last + _LATER, time.max, zone),
        )
        for days in short
        if days.first <= scope.now.date()
    ]


def work_out_exchanges(question: str, day: date, exchanges: Exchanges, relevance: Relevance) -> list[Working]:
    """What a question asks to be worked out from what the user said in the first exchanges, which are current."""
    statements = [hit.unit for hits in exchanges[:_READ] for hit in hits if hit.unit.kind == STATEMENT]
    return work_out(question, day, statements, relevance)


def _lift(wish: TimeQuestion, ranges: Sequence[DateRange], hits: Sequence[Hit], position: float) -> float:
    units = [hit.unit for hit in hits]
    days = [*_event_days(units)]
    said_on = [DateRange(unit.time.date(), unit.time.date()) for unit in units]
    fits = bool(ranges) and overlaps(ranges, [*days, *said_on])
    names = bool(days) and not _TIME_KINDS.isdisjoint(wish.kinds)
    order = {"first": 1 - position, "last": position, "": 0.0}[wish.order]
    return _IN_RANGE * fits + _NAMES_TIME * names + _ORDER * order


def _event_days(units: Sequence[Unit]) -> Iterator[DateRange]:
    """The days that the statements among units name surely."""
    for unit in units:
        if unit.kind == STATEMENT:
            yield from (span.readings[0] for span in spans_of(unit) if is_sure(span))


def _related_days(relation: Relation | None, exchanges: Exchanges) -> Iterator[DateRange]:
    """All days before or after the event that a question names, by the day of the exchange with most of its words."""
    if relation is None or not exchanges:
        return
    words = stems(relation.anchor)
    best = max(exchanges, key=lambda hits: len(words & stems(hits[0].unit.text)))
    if len(words & stems(best[0].unit.text)) < max(1, len(words) / 2):
        return
    days = list(_event_days([hit.unit for hit in best]))
    event = days[0] if len(set(days)) == 1 else DateRange(best[0].unit.time.date(), best[0].unit.time.date())
    yield DateRange(date.min, event.first) if relation.before else DateRange(event.last, date.max)


def _positions(exchanges: Exchanges) -> list[float]:
    """The place of each exchange in time, from 0 for the first to 1 for the latest."""
    times = sorted({hits[0].unit.time for hits in exchanges})
    place = {time: number / max(1, len(times) - 1) for number, time in enumerate(times)}
    return [place[hits[0].unit.time] for hits in exchanges]
