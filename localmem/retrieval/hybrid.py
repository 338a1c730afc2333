"""HybridRetriever: reciprocal rank fusion of several retrievers.

Does not depend on how they search: only ranks count, so scores of different scales need no calibration.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from heapq import nsmallest
from math import fsum

from localmem.errors import BadSettings
from localmem.retrieval.base import Match, Retriever, Scope
from localmem.types import Unit

_ENTRY_BYTES = 90  # of a dict's entry and its number
_THREADS = ThreadPoolExecutor(128, "localmem-search")  # starts a thread when it is first needed


class HybridRetriever:
    """A unit's score is the sum over the retrievers of weight / (constant + rank); see `fuse_ranks`.

    The constant of 60 is that of its authors. `depth` is
    how many matches of each retriever are fused, or `k` if that is more; `weights` default to 1 each. An `add` that
    fails in one retriever can be repeated: retrievers that already have the units ignore them. All retrievers search at
    the same time, the first on the caller's thread: put the one first that encodes the query, which takes longest.
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
        with self._guard:
            for unit in units:
                if unit.id not in self._order:
                    self._order[unit.id] = self._added
                    self._added += 1
        for retriever in self._retrievers:
            retriever.add(units)

    def remove(self, ids: Sequence[str]) -> None:
        for retriever in self._retrievers:
            retriever.remove(ids)
        with self._guard:
            for unit_id in ids:
                self._order.pop(unit_id, None)

    @property
    def memory(self) -> int:
        return sum(retriever.memory for retriever in self._retrievers) + len(self._order) * _ENTRY_BYTES

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        if k <= 0:
            return [[] for _ in queries]
        depth = max(k, self._depth)
        first, *others = self._retrievers
        searches = [_THREADS.submit(copy_context().run, other.search, queries, depth, scope) for other in others]
        results = [first.search(queries, depth, scope), *(search.result() for search in searches)]
        return [self._fuse(rankings, k) for rankings in zip(*results, strict=True)]

    def _fuse(self, rankings: Sequence[Sequence[Match]], k: int) -> list[Match]:
        weighted = [
            (weight, [match.id for match in ranking]) for weight, ranking in zip(self._weights, rankings, strict=True)
        ]
        with self._guard:
            order = self._order
            ranks = [
                (-score, order.get(unit_id, self._added), unit_id)
                for unit_id, score in fuse_ranks(weighted, self._constant)
            ]
        return [Match(unit_id, -score) for score, _, unit_id in nsmallest(k, ranks)]


def fuse_ranks(rankings: Iterable[tuple[float, Sequence[str]]], constant: float) -> list[tuple[str, float]]:
    """Ids with the sum of weight / (constant + rank) over the weighted rankings, highest first, ties as first seen.

    Reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009, section 2), rank counted from 1.
    """
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for weight, ranking in rankings:
        for rank, unit_id in enumerate(ranking, start=1):
            shares[unit_id].append(weight / (constant + rank))
    # fsum: the same shares in another order give the same score, and so a tie
    scores = [(unit_id, fsum(parts)) for unit_id, parts in shares.items()]
    return sorted(scores, key=lambda item: -item[1])
