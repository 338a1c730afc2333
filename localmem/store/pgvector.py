"""PgVectorRetriever: the nearest keys by the rows of a PostgreSQL store, for `retrieval.index: pgvector`.

A server opens a user without reading vectors or building an index of them: it keeps the units' ids, times and speakers
only. A search compares the question with all rows of one memory, so it is exact as a flat index is; an index over all
users would miss matches of small memories. Which units a search may return is decided here, by what was added and
removed, not by which rows there are.
"""

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localmem.retrieval.base import Encoder, Match, Scope, passage_digest
from localmem.retrieval.encoder import check_vectors
from localmem.retrieval.row_ids import RowIds, top_k
from localmem.store.unit_vectors import VectorRows
from localmem.types import Unit

_BATCH = 256  # units that are encoded and stored at a time
_MARGIN = 64  # rows more than the wanted ones, so that removed units seldom need a second look


class PgVectorRetriever:
    """The index of one memory over `VectorRows`; scores are cosines in single precision. Safe for many threads."""

    def __init__(self, encoder: Encoder, rows: VectorRows, user: str, system: str) -> None:
        rows.open()
        self._encoder, self._rows = encoder, rows
        self._bank = (user, system, encoder.identity)
        self._guard = threading.Lock()
        self._ids = RowIds()

    def add(self, units: Sequence[Unit]) -> None:
        with self._guard:
            new = [units[index] for index in self._ids.new_indices([unit.id for unit in units])]
        if not new:
            return
        stored = self._rows.digests(self._bank, [unit.id for unit in new])
        absent = [unit for unit in new if stored.get(unit.id) != passage_digest(unit.key)]
        for part in (absent[start : start + _BATCH] for start in range(0, len(absent), _BATCH)):
            vectors = self._encoder.encode([unit.key for unit in part], "passage")
            rows = check_vectors(vectors, self._encoder.identity).tolist()
            self._rows.put(self._bank, [(u.id, passage_digest(u.key), row) for u, row in zip(part, rows, strict=True)])
        with self._guard:
            self._ids.add([new[index] for index in self._ids.new_indices([unit.id for unit in new])])

    def remove(self, ids: Sequence[str]) -> None:
        with self._guard:
            if self._ids.remove(ids) and self._ids.needs_compaction:
                self._ids.compact()

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        results: list[list[Match]] = [[] for _ in queries]
        filled = [index for index, query in enumerate(queries) if query.strip()]
        if not filled or k <= 0 or not self._ids.live_count:
            return results
        vectors = check_vectors(self._encoder.encode([queries[i] for i in filled], "query"), self._encoder.identity)
        with self._guard:
            mask = self._ids.scope_mask(scope)
            ids = self._ids.ids
        candidates = {ids[row]: int(row) for row in np.flatnonzero(mask)}
        for index, vector in zip(filled, vectors, strict=True):
            results[index] = self._nearest(vector.tolist(), k, candidates)
        return results

    @property
    def memory(self) -> int:
        return self._ids.memory

    def _nearest(self, vector: Sequence[float], k: int, candidates: dict[str, int]) -> list[Match]:
        limit = 2 * k + _MARGIN
        proposed = self._rows.nearest(self._bank, vector, limit)
        matches = [match for match in proposed if match.id in candidates]
        if len(matches) < min(k, len(candidates)) and len(proposed) >= limit:
            matches = self._rows.nearest(self._bank, vector, limit, list(candidates))
        scores = np.array([match.score for match in matches])
        rows: NDArray[np.int64] = np.array([candidates[match.id] for match in matches], dtype=np.int64)
        return [matches[index] for index in top_k(scores, rows, k)] if matches else []
