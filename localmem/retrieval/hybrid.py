"""HybridRetriever: reciprocal rank fusion of several retrievers.

Knows nothing of how they search: ranks alone count, so that scores of different scales need no calibration.
"""

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from heapq import nsmallest
from math import fsum

from localmem.errors import BadSettings
from localmem.retrieval.base import Match, Retriever, Scope
from localmem.types import Unit

_OBJECTS = 90  # bytes of a dict's entry and its number
_HANDS = ThreadPoolExecutor(128, "localmem-search")  # none is started before it is needed


class HybridRetriever:
    """A unit's score is the sum over the retrievers of weight / (constant + rank), rank counted from 1.

    Reciprocal rank fusion with its constant of 60 (Cormack, Clarke and Buettcher, SIGIR 2009, section 2). `depth` is
    how many matches of each retriever are fused, or `k` if that is more; `weights` default to 1 each. An `add` that
    fails in one retriever can be repeated: those that have the units already leave them as they are. All retrievers
    search at the same time, the first on the caller's thread: let it be the one that has the query encoded, which
    takes longer than what the others do meanwhile.
    """

    def __init__(
        self,
        retrievers: Sequence[Retriever],
        *,
        weights: Sequence[float] | None = None,
        constant: float = 60.0,
        depth: int = 50,
    ) -> None:
        self._retrievers = tuple(retrievers)
        self._weights = tuple(weights) if weights is not None else (1.0,) * len(self._retrievers)
        if not self._retrievers or len(self._weights) != len(self._retrievers) or min(self._weights) <= 0:
            raise BadSettings(
                f"{len(self._retrievers)} retrievers with weights {list(self._weights)}; "
                "give at least one retriever and a positive weight for each"
            )
        self._constant = constant
        self._depth = depth
        self._guard = threading.Lock()
        self._added = 0
        self._order: dict[str, int] = {}

    def add(self, units: Sequence[Unit]) -> None:
        """Index the units' keys in every retriever."""
        with self._guard:
            for unit in units:
                if unit.id not in self._order:
                    self._order[unit.id] = self._added
                    self._added += 1
        for retriever in self._retrievers:
            retriever.add(units)

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units in every retriever."""
        for retriever in self._retrievers:
            retriever.remove(ids)
        with self._guard:
            for key in ids:
                self._order.pop(key, None)

    @property
    def memory(self) -> int:
        """Bytes of all the retrievers, about."""
        return sum(retriever.memory for retriever in self._retrievers) + len(self._order) * _OBJECTS

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """Fused matches, at most `k` a query, ties in the order of addition. Ranks count within the scope."""
        if k <= 0:
            return [[] for _ in queries]
        depth = max(k, self._depth)
        first, *others = self._retrievers
        searching = [_HANDS.submit(copy_context().run, other.search, queries, depth, scope) for other in others]
        lists = [first.search(queries, depth, scope), *(search.result() for search in searching)]
        return [self._fuse(rankings, k) for rankings in zip(*lists, strict=True)]

    def _fuse(self, rankings: Sequence[Sequence[Match]], k: int) -> list[Match]:
        shares: defaultdict[str, list[float]] = defaultdict(list)
        for weight, ranking in zip(self._weights, rankings, strict=True):
            for rank, match in enumerate(ranking, start=1):
                shares[match.id].append(weight / (self._constant + rank))
        return self._ranked({key: fsum(parts) for key, parts in shares.items()}, k)  # fsum: ties whatever the order

    def _ranked(self, scores: Mapping[str, float], k: int) -> list[Match]:
        with self._guard:
            order = self._order
            ranks = [(-score, order.get(key, self._added), key) for key, score in scores.items()]
        return [Match(key, -score) for score, _, key in nsmallest(k, ranks)]
