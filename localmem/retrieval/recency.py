"""RecencyRetriever: a retriever whose answers fade with age, and that looks where a date in the question points.

Knows nothing of how the inner one searches. Reads no clock: it is told when a question is asked, or takes the newest
unit's time.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from localmem.errors import BadSettings
from localmem.retrieval.base import Match, Retriever, Scope
from localmem.retrieval.query_dates import range_in
from localmem.retrieval.row_ids import RowIds, micros
from localmem.types import Unit

_DAY = 86_400 * 1_000_000  # microseconds


class RecencyRetriever:
    """`inner` with recency and dates, each of which may be left out.

    With a `half_life` in days a unit's score is the inner score times 2^(-age / half_life), and a score below 0, which
    a cosine may be, counts as 0. So whatever the scale of the scores is, a unit that is one half-life older has to
    score twice as high; where even the unlike score high (the cosines of some encoders) or all found ones score alike
    (rank fusion), age weighs more, and the half-life should be longer. Age is counted from the scope's `now`, or from
    the newest unit that it admits, which changes the scores but not their order; what lies ahead is of age 0. The first
    `depth` of the inner answer are weighed, or `k` if that is more: a unit beyond them is not found, new as it may be.

    With `dates` a question's dates (see dates.range_in) narrow the scope. When nothing is found there, the answer of
    the whole scope stands, and is counted in `unrestricted`.
    """

    def __init__(
        self, inner: Retriever, *, half_life: float | None = None, dates: bool = False, depth: int = 100
    ) -> None:
        if half_life is not None and not half_life > 0:
            raise BadSettings(f"a half-life of {half_life} days makes no sense; give a number above 0, or none")
        self._inner = inner
        self._half_life = half_life
        self._dates = dates
        self._depth = depth
        self._guard = threading.Lock()
        self._slots = RowIds()
        self.unrestricted = 0

    def add(self, units: Sequence[Unit]) -> None:
        """Index the units' keys."""
        with self._guard:
            new = [units[index] for index in self._slots.unknown([unit.id for unit in units])]
            self._slots.add(new)
        try:
            self._inner.add(units)
        except BaseException:
            self._forget([unit.id for unit in new])
            raise

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units."""
        self._inner.remove(ids)
        self._forget(ids)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """The inner matches, at most `k` a query, by faded score, best first; ties as the inner one has them."""
        if k <= 0 or not self._slots.live:
            return [[] for _ in queries]
        if self._half_life is None:
            return self._found(queries, k, scope)
        found = self._found(queries, max(k, self._depth), scope)
        now = self._now(scope)
        return [self._faded(matches, self._half_life, now)[:k] for matches in found]

    @property
    def memory(self) -> int:
        """Bytes of the inner retriever, and of the units' times, about."""
        return self._inner.memory + self._slots.memory

    def _forget(self, ids: Sequence[str]) -> None:
        with self._guard:
            if self._slots.remove(ids) and self._slots.wasteful:
                self._slots.compact()

    def _found(self, queries: Sequence[str], k: int, scope: Scope | None) -> list[list[Match]]:
        """The inner answers; those of questions that name dates from the range that they name."""
        narrowed = [self._narrowed(query, scope or Scope()) for query in queries] if self._dates else []
        if not any(narrowed):
            return self._inner.search(queries, k, scope)
        within = [
            self._inner.search([query], k, narrow)[0] if narrow else []
            for query, narrow in zip(queries, narrowed, strict=True)
        ]
        rest = [index for index, matches in enumerate(within) if not matches]
        for index, matches in zip(rest, self._inner.search([queries[index] for index in rest], k, scope), strict=True):
            within[index] = matches
            self.unrestricted += narrowed[index] is not None
        return within

    def _narrowed(self, query: str, scope: Scope) -> Scope | None:
        """The part of the scope that the query's dates leave; None for a query without dates."""
        asked = range_in(query, scope.now)
        if asked is None:
            return None
        return replace(scope, since=_last(scope.since, asked.since), until=_first(scope.until, asked.until))

    def _now(self, scope: Scope | None) -> int:
        if scope is not None and scope.now is not None:
            return micros(scope.now)
        with self._guard:
            times = self._slots.times[self._slots.admitted(scope)]
        return int(times.max(initial=0))

    def _faded(self, matches: Sequence[Match], half_life: float, now: int) -> list[Match]:
        with self._guard:
            there = [match for match in matches if match.id in self._slots]  # another thread may have removed some
            times = self._slots.times[[self._slots.slot(match.id) for match in there]]
        ages = np.maximum(0, now - times) / _DAY
        faded = np.maximum(0, [match.score for match in there]) * np.exp2(-ages / half_life)
        order = np.argsort(-faded, kind="stable")
        return [Match(there[at].id, float(faded[at])) for at in order]


def _last(one: datetime | None, other: datetime | None) -> datetime | None:
    return max(one, other) if one and other else one or other


def _first(one: datetime | None, other: datetime | None) -> datetime | None:
    return min(one, other) if one and other else one or other
