"""Retrievers around another one: keys with the units before them; scores that fall with age, and dates in questions.

Does not depend on how the inner retriever searches, and reads no clock: the scope gives the time of the question, or
else the newest unit does.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import regex

from localmem.errors import BadSettings
from localmem.retrieval.base import Match, Retriever, Scope
from localmem.retrieval.row_ids import RowIds, to_microseconds
from localmem.types import Unit


class RetrieverWrapper:
    """Passes everything on to `inner`; the base class of wrappers that record something of each unit."""

    def __init__(self, inner: Retriever) -> None:
        self._inner = inner
        self._guard = threading.Lock()

    def add(self, units: Sequence[Unit]) -> None:
        with self._guard:
            new = self._record(units)
        try:
            self._inner.add(units)
        except BaseException:
            self._forget(new)
            raise

    def remove(self, ids: Sequence[str]) -> None:
        self._inner.remove(ids)
        self._forget(ids)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        return self._inner.search(queries, k, scope)

    @property
    def memory(self) -> int:
        return self._inner.memory

    def _record(self, units: Sequence[Unit]) -> Sequence[str]:
        """Records the units that are not present yet, and returns their ids."""
        raise NotImplementedError

    def _forget(self, ids: Sequence[str]) -> None:
        raise NotImplementedError


class ContextualRetriever(RetrieverWrapper):
    """`inner`, with keys made of a unit's date, the `context_units` units of its session before it, and its own key.

    A reply needs its question to make sense. Units of a session must be added in the order of the conversation. The
    units themselves stay unchanged: text of an earlier unit is only in the index, and is gone when that unit is erased
    and the index is built again.
    """

    def __init__(self, inner: Retriever, *, context_units: int = 1) -> None:
        super().__init__(inner)
        self._recent: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=context_units))
        self._ids: set[str] = set()

    def add(self, units: Sequence[Unit]) -> None:
        with self._guard:
            recent = {unit.session: self._recent[unit.session].copy() for unit in units}
            new = {unit.id for unit in units} - self._ids
            try:
                self._inner.add([self._with_context(unit) for unit in units if unit.id not in self._ids])
            except BaseException:
                self._ids -= new
                self._recent |= recent
                raise

    def remove(self, ids: Sequence[str]) -> None:
        with self._guard:
            self._ids.difference_update(ids)
            self._inner.remove(ids)

    def _with_context(self, unit: Unit) -> Unit:
        recent = self._recent[unit.session]
        key = "\n".join([_spell(unit.time.date()), *recent, unit.key])
        recent.append(unit.key)
        self._ids.add(unit.id)
        return replace(unit, key=key)


@lru_cache(maxsize=256)  # units of one day come together
def _spell(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\.?"
)
_WEEKDAY = r"(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_DAY = r"(?:the )?\d{1,2}(?:st|nd|rd|th)?"
_NUMBER = r"(?:\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_DATE = regex.compile(
    rf"(?:\b(?P<bound>(?i:before|after|since|until))\s+(?:the\s+)?)?\b(?P<date>"
    rf"\d{{4}}-\d{{2}}-\d{{2}}"
    rf"|{_DAY}(?: of)? {_MONTH}(?:,? \d{{4}})?"
    rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?(?!\d)"
    rf"|{_MONTH}(?:,| of)? \d{{4}}"
    rf"|(?<=\b(?i:in|during|last|since|before|after|until) ){_MONTH}"
    rf"|(?<=\b(?i:in|during|of|since|before|after|until) )(?:19|20)\d{{2}}(?!\d)"
    rf"|(?i:the day before yesterday|yesterday|today|last night|this morning)"
    rf"|(?i:last|this) (?:(?i:week|month|year)|{_WEEKDAY})"
    rf"|(?<=\b(?i:on|since|before|after|until) ){_WEEKDAY}"
    rf"|(?i:{_NUMBER} (?:day|week|month|year)s? ago)"
    rf")\b",
)
_YEAR = regex.compile(r"\b\d{4}\b")
_ANY_DAY = datetime(2000, 1, 15)  # noqa: DTZ001  # dateparser needs one; a date with a year does not depend on it
_MOMENT = timedelta(microseconds=1)


class Range(NamedTuple):
    """From `since` to `until`, both included; None is unbounded."""

    since: datetime | None
    until: datetime | None


def read_range(text: str, now: datetime | None) -> Range | None:
    """The range that covers all dates of a question; None for a question without readable dates.

    The precision of a date is its length: a day, a week from Monday, a month, a year. "before", "after", "since" and
    "until" leave one end open. A relative date, or one without a year, is the last such one before `now`.
    """
    matches = _DATE.finditer(text)
    ranges = [part for match in matches if (part := _read(match["date"], match["bound"], now)) is not None]
    if not ranges:
        return None
    starts, ends = [part.since for part in ranges], [part.until for part in ranges]
    since = None if None in starts else min(start for start in starts if start)
    return Range(since, None if None in ends else max(end for end in ends if end))


def _read(words: str, bound: str | None, now: datetime | None) -> Range | None:
    from dateparser.date import DateDataParser

    if now is None and not _YEAR.search(words):
        return None
    zone = now.tzinfo if now else UTC
    base = now.replace(tzinfo=None) if now else _ANY_DAY
    settings = {"RELATIVE_BASE": base, "PREFER_DATES_FROM": "past", "TIMEZONE": "UTC", "DATE_ORDER": "YMD"}
    parsed = DateDataParser(languages=["en"], settings=settings).get_date_data(words)
    if parsed.date_obj is None:
        return None
    try:
        return _bound(*_span(parsed.date_obj.replace(tzinfo=None), parsed.period, zone), (bound or "").lower())
    except (OverflowError, ValueError):  # the calendar ends with the year 9999
        return None


def _bound(first: datetime, last: datetime, bound: str) -> Range:
    match bound:
        case "before":
            return Range(None, first - _MOMENT)
        case "until":
            return Range(None, last)
        case "after":
            return Range(last + _MOMENT, None)
        case "since":
            return Range(first, None)
    return Range(first, last)


def _span(date: datetime, period: str, zone: tzinfo | None) -> tuple[datetime, datetime]:
    day = date.replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "week":
            first = day - timedelta(days=day.weekday())
            after = first + timedelta(days=7)
        case "month":
            first = day.replace(day=1)
            after = (first + timedelta(days=32)).replace(day=1)
        case "year":
            first = day.replace(month=1, day=1)
            after = first.replace(year=first.year + 1)
        case _:
            first, after = day, day + timedelta(days=1)
    return first.replace(tzinfo=zone), (after - _MOMENT).replace(tzinfo=zone)


_DAY_LENGTH = 86_400 * 1_000_000  # microseconds


class RecencyRetriever(RetrieverWrapper):
    """`inner` with recency and dates, each of which is optional.

    With a `half_life` in days a unit's score is the inner score times 2^(-age / half_life), and a score below 0, which
    a cosine may be, counts as 0. So on any scale, a unit that is one half-life older has to score twice as high; where
    unrelated units score high too (the cosines of some encoders) or all matches score alike (rank fusion), age weighs
    more, and the half-life should be longer. Age counts from the scope's `now`, or from the newest unit in scope, which
    changes the scores but not their order; a later event has age 0. The first `depth` inner matches are weighted, or
    `k` if that is more: a unit beyond them does not match, however new it is.

    With `dates` a question's dates (see read_range) narrow the scope. When nothing matches there, the
    matches of the whole scope are returned, and counted in `unrestricted`.
    """

    def __init__(
        self, inner: Retriever, *, half_life: float | None = None, dates: bool = False, depth: int = 100
    ) -> None:
        if half_life is not None and not half_life > 0:
            raise BadSettings(f"the half-life is {half_life} days; give a number above 0, or omit it")
        super().__init__(inner)
        self._half_life = half_life
        self._dates = dates
        self._depth = depth
        self._ids = RowIds()
        self.unrestricted = 0

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """The inner matches, at most `k` a query, by weighted score, best first; ties as in the inner retriever."""
        if k <= 0 or not self._ids.live_count:
            return [[] for _ in queries]
        if self._half_life is None:
            return self._search_dates(queries, k, scope)
        results = self._search_dates(queries, max(k, self._depth), scope)
        now = self._now(scope)
        return [self._weight(matches, self._half_life, now)[:k] for matches in results]

    @property
    def memory(self) -> int:
        return self._inner.memory + self._ids.memory

    def _record(self, units: Sequence[Unit]) -> Sequence[str]:
        new = [units[index] for index in self._ids.new_indices([unit.id for unit in units])]
        self._ids.add(new)
        return [unit.id for unit in new]

    def _forget(self, ids: Sequence[str]) -> None:
        with self._guard:
            if self._ids.remove(ids) and self._ids.needs_compaction:
                self._ids.compact()

    def _search_dates(self, queries: Sequence[str], k: int, scope: Scope | None) -> list[list[Match]]:
        ranges = [_narrow(query, scope or Scope()) for query in queries] if self._dates else []
        if not any(ranges):
            return self._inner.search(queries, k, scope)
        results = [
            self._inner.search([query], k, narrowed)[0] if narrowed else []
            for query, narrowed in zip(queries, ranges, strict=True)
        ]
        empty = [index for index, matches in enumerate(results) if not matches]
        for index, matches in zip(
            empty, self._inner.search([queries[index] for index in empty], k, scope), strict=True
        ):
            results[index] = matches
            self.unrestricted += ranges[index] is not None
        return results

    def _now(self, scope: Scope | None) -> int:
        if scope is not None and scope.now is not None:
            return to_microseconds(scope.now)
        with self._guard:
            times = self._ids.times[self._ids.scope_mask(scope)]
        return int(times.max(initial=0))

    def _weight(self, matches: Sequence[Match], half_life: float, now: int) -> list[Match]:
        with self._guard:
            present = [match for match in matches if match.id in self._ids]  # another thread may have removed some
            times = self._ids.times[[self._ids.row_of(match.id) for match in present]]
        ages = np.maximum(0, now - times) / _DAY_LENGTH
        weighted = np.maximum(0, [match.score for match in present]) * np.exp2(-ages / half_life)
        order = np.argsort(-weighted, kind="stable")
        return [Match(present[index].id, float(weighted[index])) for index in order]


def _narrow(query: str, scope: Scope) -> Scope | None:
    dates = read_range(query, scope.now)
    if dates is None:
        return None
    starts, ends = filter(None, (scope.since, dates.since)), filter(None, (scope.until, dates.until))
    return replace(scope, since=max(starts, default=None), until=min(ends, default=None))
