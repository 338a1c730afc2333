"""DenseRetriever: the nearest keys by inner product, proposed by FAISS and ranked by exact arithmetic.

Depends on an encoder's contract only.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from localmem.errors import BadSettings
from localmem.retrieval.base import Encoder, IndexKind, Match, ReadsAhead, Scope, Side
from localmem.retrieval.encoder import check_vectors
from localmem.retrieval.gpu_device import gpu_for
from localmem.retrieval.row_ids import RowIds, top_k
from localmem.retrieval.row_index import (
    IndexFile,
    IndexSnapshot,
    RowIndex,
    digest_rows,
    surviving_rows,
)
from localmem.types import Unit

# Why two steps. FAISS compares the query with rows at half precision, which halves the memory that a scan reads, and
# the time of a scan is the time of reading. Its scores are off by up to _HALF_ERROR, and a GPU rounds differently from
# a CPU. So FAISS only proposes rows, more than k of them; the scores that decide are computed here from the float32
# vectors, in double precision and with one order of summation, so that equal vectors get equal scores, ties follow the
# order of addition, and the result is the same on every machine. The tests compare it with brute force.
#
# When a proposal is complete. A row outside the proposal has a rough score no higher than the last proposed one, hence
# an exact score of at most that plus the error bound. If the k-th exact score of the proposal lies above, no other row
# can be among the best k and the proposal decides. Otherwise (many equal or almost equal vectors, or a scope with few
# rows) all rows in scope are compared: slow, rare, and the reason why a flat index is exact and not nearly exact.
# A graph or lists of rows may miss rows for another reason: they look at a part of the bank.
#
# Why a graph is built in a thread of its own. From EXACT_UNTIL rows on it answers faster than a scan (0.7 ms in place
# of 7.1 over 100,000 rows), but building it takes far longer than an addition may, so the flat index serves until
# the graph is complete. `_compactions` tells the builder that rows were renumbered meanwhile: its graph would return
# the wrong units, so it is dropped, and the next addition starts again.
#
# Why a written index must have no dead rows. An erased unit must not reach the disk again, and a row that was removed
# may belong to one (see `_write`). Conversely a file that was written before a removal is read with the removed rows
# as dead rows, which keeps it useful (see `_adopt`).

Kind = Literal["auto"] | IndexKind
Rows = NDArray[np.float32]
Mask = NDArray[np.bool_]

EXACT_UNTIL = 20_000  # units up to which "auto" scans every row; beyond it a graph is faster
# Bounds of the error of an inner product of two unit rows: both rounded to half precision (2 * 2^-11), or computed in
# single precision whatever the order of summation.
_HALF_ERROR, _SINGLE_ERROR = 1.1e-3, 1e-5
_BLOCK = 4096  # rows that are multiplied in double precision at a time
_OUTGROWN = 4  # lists are built again when the bank is this many times larger than at their last build
_BUILDER = "localmem-index"  # the name of the threads that build
_UNWRITTEN_SHARE = 10  # the file is written again when one in ten rows is new


class DenseRetriever:
    """An index over the vectors of the units' keys; scores are cosines.

    "flat" compares a query with every unit: it equals brute force in double precision, ties in the order of addition.
    "hnsw" and "ivf" look at a part of them and may miss a match; see RowIndex. "auto" is flat up to EXACT_UNTIL units
    and hnsw beyond, which it builds while additions and searches continue; on a GPU it stays flat. `device` is auto,
    cpu, cuda or cuda:N. Without `half` the index stores 4 bytes a number, not 2, for the same results. A query of white
    space matches nothing. Searches wait for one another, but neither for encoding nor for the building of an
    index. An index that took long to build is saved in `file`, where the next retriever reads it that gets the same
    units first.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        kind: Kind = "auto",
        file: Path | None = None,
        half: bool = True,
        device: str = "auto",
    ) -> None:
        if kind not in ("auto", "flat", "hnsw", "ivf"):
            raise BadSettings(f"unknown dense index {kind!r}; use auto, flat, hnsw or ivf")
        self._encoder = encoder
        self._kind = kind
        self._half = half
        self._device = device
        self._file = IndexFile(file) if file else None
        self._guard = threading.Lock()
        self._building = threading.Lock()
        self._ids = RowIds()
        self._vectors: Rows = np.zeros((0, 0), dtype=np.float32)
        self._compactions = 0
        self._index: RowIndex | None = None
        self._builder: threading.Thread | None = None
        self._built_rows = 0  # rows when the index was built
        self._written_rows = 0  # rows when it was written to its file

    def add(self, units: Sequence[Unit]) -> None:
        """Encodes and indexes the keys of units not present yet. Raises BadVectors, and adds none of them."""
        with self._guard:
            new = [units[index] for index in self._ids.new_indices([unit.id for unit in units])]
        if not new:
            return
        vectors = self._encode([unit.key for unit in new], "passage")
        saved = self._read_file(new, vectors)
        with self._guard:
            if saved is None or not self._adopt(new, vectors, *saved):
                absent = self._ids.new_indices([unit.id for unit in new])  # another thread may have added some
                self._append([new[index] for index in absent], vectors[absent])
            in_thread = self._kind == "auto" and self._is_due()
        if in_thread and (self._builder is None or not self._builder.is_alive()):
            # Not a daemon: the process waits for the thread at its end, although the addition does not.
            self._builder = threading.Thread(target=self._update_index, name=_BUILDER)
            self._builder.start()
        elif self._kind != "auto":
            self._update_index()

    def read_ahead(self, texts: Sequence[str]) -> None:
        """Encode together keys that are about to be searched for and added."""
        if isinstance(self._encoder, ReadsAhead):
            self._encoder.read_ahead(texts)

    def remove(self, ids: Sequence[str]) -> None:
        with self._guard:
            if self._ids.remove(ids) and self._ids.needs_compaction:
                self._compact()

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """Cosine scores, best first."""
        results: list[list[Match]] = [[] for _ in queries]
        filled = [index for index, query in enumerate(queries) if query.strip()]
        if not filled or k <= 0 or not self._ids.live_count:
            return results
        vectors = self._encode([queries[index] for index in filled], "query")
        with self._guard:
            for index, matches in zip(filled, self._nearest(vectors, k, scope), strict=True):
                results[index] = matches
        return results

    @property
    def memory(self) -> int:
        index = self._index
        return int(self._vectors.nbytes) + (index.memory if index is not None else 0) + self._ids.memory

    def _encode(self, texts: Sequence[str], side: Side) -> Rows:
        return check_vectors(self._encoder.encode(texts, side), self._encoder.identity)

    def _append(self, units: Sequence[Unit], vectors: Rows) -> None:
        start, end = len(self._ids), len(self._ids) + len(units)
        self._ids.add(units)
        if end > len(self._vectors):
            spare = np.empty((len(units) + end // 4, vectors.shape[1]), dtype=np.float32)
            self._vectors = np.concatenate([self._vectors[:start], spare]) if start else spare
        self._vectors[start:end] = vectors
        if self._index is None:
            self._index = RowIndex.build("flat", vectors, half=self._half, device=self._device)
        else:
            self._index.add(vectors)

    def _compact(self) -> None:
        self._vectors = self._vectors[self._ids.compact()]
        self._compactions += 1
        self._index = RowIndex.build("flat", self._vectors, half=self._half, device=self._device)

    def _kind_for(self, live_count: int) -> IndexKind:
        if self._kind == "auto":
            return "hnsw" if live_count > EXACT_UNTIL and not gpu_for(self._device) else "flat"
        return self._kind

    def _is_due(self) -> bool:
        if self._index is None or self._kind_for(self._ids.live_count) == "flat":
            return False
        unwritten = len(self._ids) - self._written_rows > len(self._ids) // _UNWRITTEN_SHARE
        return self._index.kind == "flat" or (self._file is not None and unwritten)

    def _update_index(self) -> None:
        """Builds the kind of index that suits the number of units and writes it; searches use the old one meanwhile."""
        with self._building:
            with self._guard:
                kind, count = self._kind_for(self._ids.live_count), len(self._ids)
                vectors, compactions = self._vectors[:count], self._compactions
                suitable = self._index is not None and self._index.kind == kind
            if kind == "flat" or not count:
                return
            if not suitable or (kind == "ivf" and count > _OUTGROWN * self._built_rows):
                self._use(RowIndex.build(kind, vectors, half=self._half, device=self._device), count, compactions)
            if self._file and count - self._written_rows > count // _UNWRITTEN_SHARE:
                self._write(self._file, kind)

    def _use(self, index: RowIndex, count: int, compactions: int) -> None:
        """Replaces the index by a new one over the first `count` rows, and adds the rows that came meanwhile."""
        with self._guard:
            if compactions == self._compactions:
                if len(self._ids) > count:
                    index.add(self._vectors[count : len(self._ids)])
                self._index, self._built_rows, self._written_rows = index, count, 0

    def _write(self, file: IndexFile, kind: IndexKind) -> None:
        with self._guard:
            if self._index is None or self._index.kind != kind:
                return
            count = self._written_rows = len(self._ids)
            if self._ids.live_count < count:
                return  # a dead row may be an erased unit's
            ids = self._ids.ids
            index, vectors = self._index.to_bytes(), self._vectors
        file.write(IndexSnapshot(ids, digest_rows(vectors[:count]), index), self._made_by(kind))

    def _made_by(self, kind: IndexKind) -> str:
        return f"{self._encoder.identity} {kind} {'half' if self._half else 'single'}"

    def _read_file(self, units: Sequence[Unit], vectors: Rows) -> tuple[RowIndex, IndexSnapshot, Mask] | None:
        """The saved index, if there is one for these units and none in memory yet."""
        kind, file = self._kind_for(len(units)), self._file
        if file is None or len(self._ids) or kind == "flat":
            return None
        snapshot = file.read(self._made_by(kind))
        if snapshot is None:
            return None
        surviving = surviving_rows(snapshot, units, digest_rows(vectors))
        if surviving is None:
            file.reject("is of other units")
            return None
        try:
            return RowIndex.from_bytes(kind, snapshot.index, half=self._half, device=self._device), snapshot, surviving
        except RuntimeError as error:
            file.reject(f"cannot be read by this FAISS: {str(error).splitlines()[0]}")
            return None

    def _adopt(
        self, units: Sequence[Unit], vectors: Rows, index: RowIndex, snapshot: IndexSnapshot, surviving: Mask
    ) -> bool:
        """Uses a saved index, with the units that were added since. False if another thread was first."""
        if len(self._ids):
            return False
        present = int(np.count_nonzero(surviving))
        order = iter(units)
        # A removed unit still has its row in the index: any unit under its id takes the row and leaves it dead.
        rows = [
            next(order) if alive else replace(units[0], id=unit_id)
            for unit_id, alive in zip(snapshot.ids, surviving, strict=True)
        ]
        self._ids.add(rows)
        self._ids.remove([unit_id for unit_id, alive in zip(snapshot.ids, surviving, strict=True) if not alive])
        self._vectors = np.zeros((len(rows), vectors.shape[1]), dtype=np.float32)
        self._vectors[surviving] = vectors[:present]
        self._index, self._built_rows, self._written_rows = index, len(rows), len(rows)
        if len(units) > present:
            self._append(units[present:], vectors[present:])
        if self._ids.needs_compaction:
            self._compact()
        return True

    def _nearest(self, queries: Rows, k: int, scope: Scope | None) -> list[list[Match]]:
        mask = self._ids.scope_mask(scope)
        count = int(np.count_nonzero(mask))
        if self._index is None or not count:
            return [[] for _ in queries]
        everything = count == len(mask)
        # More than k, so that ties and close scores seldom need a scan of all rows.
        scores, rows = self._index.propose(queries, 2 * k + 64, None if everything else mask)
        return [self._decide(*proposal, k, mask, count) for proposal in zip(queries, scores, rows, strict=True)]

    def _decide(
        self, query: Rows, scores: Rows, rows: NDArray[np.int64], k: int, mask: Mask, count: int
    ) -> list[Match]:
        """The best `k` of the proposed rows, or of all in scope when the proposal may lack one of them."""
        error = _HALF_ERROR if self._half else _SINGLE_ERROR
        valid = rows >= 0
        valid[valid] = mask[rows[valid]]
        proposed, rough = rows[valid], scores[valid]
        # Only rows whose rough score is within both errors of the k-th can be among the best; the rest is not ranked.
        close = rough >= rough[k - 1] - 2 * error if len(rough) > k else slice(None)
        matches = self._rank(query, proposed[close], k)
        if len(proposed) == count or (len(matches) == k and scores[-1] + error < matches[-1].score):
            return matches
        return self._rank(query, self._scan(query, k, mask), k)

    def _scan(self, query: Rows, k: int, mask: Mask) -> NDArray[np.intp]:
        """The rows in scope that can be among the best `k`, by comparing all of them in single precision."""
        rows = np.flatnonzero(mask)
        if k >= len(rows):
            return rows
        few = 4 * len(rows) < len(mask)  # then copying them out is cheaper than multiplying all
        scores = self._vectors[rows] @ query if few else (self._vectors[: len(mask)] @ query)[rows]
        bar = np.partition(scores, -k)[-k] - 2 * _SINGLE_ERROR
        return rows[np.flatnonzero(scores >= bar)]

    def _rank(self, query: Rows, rows: NDArray[np.int64], k: int) -> list[Match]:
        scores = _products(self._vectors, rows, query)
        order = top_k(scores, rows, k)
        return self._ids.matches(rows[order], scores[order])


def wait_for_builds() -> None:
    """Returns when no retriever of this process builds: for measuring searches without a build running beside them."""
    for thread in threading.enumerate():
        if thread.name == _BUILDER:
            thread.join()


def _products(vectors: Rows, rows: NDArray[np.int64], query: Rows) -> NDArray[np.float64]:
    """Inner products in double precision; every row is summed in the same order, which BLAS does not guarantee."""
    wide = query.astype(np.float64)
    parts = [
        (vectors[rows[start : start + _BLOCK]].astype(np.float64) * wide).sum(axis=1)
        for start in range(0, len(rows), _BLOCK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)
