"""RecencyRetriever: a retriever whose scores fall with age, and that follows a date in the question.

Does not depend on how the inner retriever searches, and reads no clock: the scope gives the time of the question, or
else the newest unit does.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from localmem.errors import BadSettings
from localmem.retrieval.base import Match, Retriever, Scope
from localmem.retrieval.query_dates import read_range
from localmem.retrieval.row_ids import RowIds, to_microseconds
from localmem.types import Unit

_DAY = 86_400 * 1_000_000  # microseconds


class RecencyRetriever:
    """`inner` with recency and dates, each of which is optional.

    With a `half_life` in days a unit's score is the inner score times 2^(-age / half_life), and a score below 0, which
    a cosine may be, counts as 0. So on any scale, a unit that is one half-life older has to score twice as high; where
    unrelated units score high too (the cosines of some encoders) or all matches score alike (rank fusion), age weighs
    more, and the half-life should be longer. Age counts from the scope's `now`, or from the newest unit in scope, which
    changes the scores but not their order; a later event has age 0. The first `depth` inner matches are weighted, or
    `k` if that is more: a unit beyond them does not match, however new it is.

    With `dates` a question's dates (see query_dates.read_range) narrow the scope. When nothing matches there, the
    matches of the whole scope are returned, and counted in `unrestricted`.
    """

    def __init__(
        self, inner: Retriever, *, half_life: float | None = None, dates: bool = False, depth: int = 100
    ) -> None:
        if half_life is not None and not half_life > 0:
            raise BadSettings(f"the half-life is {half_life} days; give a number above 0, or omit it")
        self._inner = inner
        self._half_life = half_life
        self._dates = dates
        self._depth = depth
        self._guard = threading.Lock()
        self._ids = RowIds()
        self.unrestricted = 0

    def add(self, units: Sequence[Unit]) -> None:
        """Indexes the units' keys."""
        with self._guard:
            new = [units[index] for index in self._ids.new_indices([unit.id for unit in units])]
            self._ids.add(new)
        try:
            self._inner.add(units)
        except BaseException:
            self._forget([unit.id for unit in new])
            raise

    def remove(self, ids: Sequence[str]) -> None:
        """Removes these units."""
        self._inner.remove(ids)
        self._forget(ids)

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
        """Approximate bytes of the inner retriever and of the units' times."""
        return self._inner.memory + self._ids.memory

    def _forget(self, ids: Sequence[str]) -> None:
        with self._guard:
            if self._ids.remove(ids) and self._ids.needs_compaction:
                self._ids.compact()

    def _search_dates(self, queries: Sequence[str], k: int, scope: Scope | None) -> list[list[Match]]:
        """The inner matches; for a question with dates those of its range, if there are any."""
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
        ages = np.maximum(0, now - times) / _DAY
        weighted = np.maximum(0, [match.score for match in present]) * np.exp2(-ages / half_life)
        order = np.argsort(-weighted, kind="stable")
        return [Match(present[index].id, float(weighted[index])) for index in order]


def _narrow(query: str, scope: Scope) -> Scope | None:
    """The part of the scope within the query's dates; None for a query without dates."""
    dates = read_range(query, scope.now)
    if dates is None:
        return None
    return replace(scope, since=_later(scope.since, dates.since), until=_earlier(scope.until, dates.until))


def _later(first: datetime | None, second: datetime | None) -> datetime | None:
    return max(first, second) if first and second else first or second


def _earlier(first: datetime | None, second: datetime | None) -> datetime | None:
    return min(first, second) if first and second else first or second
