"""DenseRetriever: nearest keys by inner product, found with FAISS and ranked by exact arithmetic.

Knows an encoder by its contract only. FAISS scans rows at half precision and proposes candidates; the float32 rows kept
here decide. So a CPU and a GPU give the same answer, and an exhaustive scan that reads half the memory is still exact.
"""

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from localmem.errors import BadSettings
from localmem.retrieval.base import Encoder, Match, Scope, Side
from localmem.retrieval.encoder import check_vectors
from localmem.retrieval.index_file import IndexFile, Kept, marks_of, still_there
from localmem.retrieval.row_ids import RowIds, best
from localmem.retrieval.row_index import Made, RowIndex, has_gpu
from localmem.types import Unit

Kind = Literal["auto", "flat", "hnsw", "ivf"]
Rows = NDArray[np.float32]
Mask = NDArray[np.bool_]

EXACT_UNTIL = 20_000  # units; "auto" scans every row of a bank up to this size: beyond it, nothing else takes as long
_HALF = 1.1e-3  # bounds the error of an inner product of unit rows that are both rounded to half precision: 2 * 2^-11
_SINGLE = 1e-5  # the same for single precision, whatever the order of summation
_BLOCK = 4096  # rows that are multiplied in double precision at a time
_OUTGROWN = 4  # lists are made anew when there are so many times the rows that their centres were found among
_BUILDER = "localmem-index"  # the threads that build behind
_WRITTEN = 10  # a file is written anew when a tenth of the rows has come since


class DenseRetriever:
    """An index over the vectors of the units' keys; scores are cosines.

    "flat" compares a query with every unit: it equals brute force in double precision, ties in the order of addition.
    "hnsw" and "ivf" look at a part of them and may miss a match; see RowIndex. "auto" is flat up to EXACT_UNTIL units
    and hnsw beyond, which it builds while additions and searches go on; where FAISS has a GPU the scan stays, on the
    GPU. Without `half` the index keeps 4 bytes a number in place of 2, for the same answers. A query of white space
    finds nothing. Searches wait for one another, but neither for encoding nor for the building of an index. What took
    long to build is kept in `file`, and read from there by the next retriever that is given the same units first.
    """

    def __init__(self, encoder: Encoder, *, kind: Kind = "auto", file: Path | None = None, half: bool = True) -> None:
        if kind not in ("auto", "flat", "hnsw", "ivf"):
            raise BadSettings(f"no dense index is called {kind!r}; use auto, flat, hnsw or ivf")
        self._encoder = encoder
        self._kind = kind
        self._half = half
        self._file = IndexFile(file) if file else None
        self._guard = threading.Lock()
        self._building = threading.Lock()
        self._slots = RowIds()
        self._rows: Rows = np.zeros((0, 0), dtype=np.float32)
        self._compactions = 0
        self._index: RowIndex | None = None
        self._builder: threading.Thread | None = None
        self._built = 0  # rows there were when the index was built
        self._written = 0  # rows there were when it was written to its file

    def add(self, units: Sequence[Unit]) -> None:
        """Encode and index the keys of the units that are not there yet. Raises BadVectors, and adds none of them."""
        with self._guard:
            new = [units[index] for index in self._slots.unknown([unit.id for unit in units])]
        if not new:
            return
        rows = self._encode([unit.key for unit in new], "passage")
        restored = self._restored(new, rows)
        with self._guard:
            if restored is None or not self._take_over(new, rows, *restored):
                still = self._slots.unknown([unit.id for unit in new])  # another thread may have come first
                self._append([new[index] for index in still], rows[still])
            behind = self._kind == "auto" and self._is_due()
        if behind:
            self._keep_up_behind()
        elif self._kind != "auto":
            self._keep_up()

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units. Their rows go when a fifth of all are dead."""
        with self._guard:
            if self._slots.remove(ids) and self._slots.wasteful:
                self._compact()

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """Cosine scores, best first."""
        found: list[list[Match]] = [[] for _ in queries]
        asked = [index for index, query in enumerate(queries) if query.strip()]
        if not asked or k <= 0 or not self._slots.live:
            return found
        vectors = self._encode([queries[index] for index in asked], "query")
        with self._guard:
            for index, matches in zip(asked, self._nearest(vectors, k, scope), strict=True):
                found[index] = matches
        return found

    @property
    def memory(self) -> int:
        """Bytes of the rows, of the index over them and of the ids, about."""
        index = self._index
        return int(self._rows.nbytes) + (index.memory if index is not None else 0) + self._slots.memory

    @property
    def refused(self) -> int:
        """How many index files could not be used."""
        return self._file.refused if self._file else 0

    def _encode(self, texts: Sequence[str], side: Side) -> Rows:
        return check_vectors(self._encoder.encode(texts, side), self._encoder.identity)

    # -- rows -------------------------------------------------------------------------------------------------------

    def _append(self, units: Sequence[Unit], rows: Rows) -> None:
        start, end = len(self._slots), len(self._slots) + len(units)
        self._slots.add(units)
        if end > len(self._rows):
            spare = np.empty((len(units) + end // 4, rows.shape[1]), dtype=np.float32)
            self._rows = np.concatenate([self._rows[:start], spare]) if start else spare
        self._rows[start:end] = rows
        if self._index is None:
            self._index = RowIndex.over("flat", rows, half=self._half)
        else:
            self._index.add(rows)

    def _compact(self) -> None:
        self._rows = self._rows[self._slots.compact()]
        self._compactions += 1
        self._index = RowIndex.over("flat", self._rows, half=self._half)

    # -- building an index, and keeping it --------------------------------------------------------------------------

    def _wanted(self, live: int) -> Made:
        """The kind of index for so many units."""
        if self._kind == "auto":
            return "hnsw" if live > EXACT_UNTIL and not has_gpu() else "flat"
        return self._kind

    def settle(self) -> None:
        """Wait until what "auto" builds behind is in place."""
        if self._builder is not None:
            self._builder.join()

    def _is_due(self) -> bool:
        """Whether an index is to be built or written."""
        if self._index is None or self._wanted(self._slots.live) == "flat":
            return False
        unwritten = len(self._slots) - self._written > len(self._slots) // _WRITTEN
        return self._index.kind == "flat" or (self._file is not None and unwritten)

    def _keep_up_behind(self) -> None:
        """A thread of its own, which the process waits for at its end: the addition need not."""
        if self._builder is None or not self._builder.is_alive():
            self._builder = threading.Thread(target=self._keep_up, name=_BUILDER)
            self._builder.start()

    def _keep_up(self) -> None:
        """Hands over to another kind when the units have become many. Searches go on meanwhile with what there is."""
        with self._building:
            with self._guard:
                wanted, count = self._wanted(self._slots.live), len(self._slots)
                rows, compactions = self._rows[:count], self._compactions
                there = self._index is not None and self._index.kind == wanted
            if wanted == "flat" or not count:
                return
            if not there or (wanted == "ivf" and count > _OUTGROWN * self._built):
                self._hand_over(RowIndex.over(wanted, rows, half=self._half), count, compactions)
            if self._file and count - self._written > count // _WRITTEN:
                self._write(self._file, wanted)

    def _hand_over(self, index: RowIndex, count: int, compactions: int) -> None:
        with self._guard:
            if compactions == self._compactions:  # else its rows have moved; the next addition tries again
                if len(self._slots) > count:
                    index.add(self._rows[count : len(self._slots)])
                self._index, self._built, self._written = index, count, 0

    def _write(self, file: IndexFile, kind: Made) -> None:
        with self._guard:
            if self._index is None or self._index.kind != kind:
                return
            count = self._written = len(self._slots)
            if self._slots.live < count:
                return  # a dead row may be an erased unit's, and nothing of it may reach the disk again
            ids = self._slots.ids
            index, rows = self._index.dumped(), self._rows
        file.write(Kept(ids, marks_of(rows[:count]), index), self._made_by(kind))

    def _made_by(self, kind: Made) -> str:
        return f"{self._encoder.identity} {kind} {'half' if self._half else 'single'}"

    def _restored(self, units: Sequence[Unit], rows: Rows) -> tuple[RowIndex, Kept, Mask] | None:
        """The index from the file, if there is one for these units and none in memory yet."""
        kind, file = self._wanted(len(units)), self._file
        if file is None or len(self._slots) or kind == "flat":
            return None
        kept = file.read(self._made_by(kind))
        if kept is None:
            return None
        there = still_there(kept, units, marks_of(rows))
        if there is None:
            file.refuse("is of other units")
            return None
        try:
            return RowIndex.loaded(kind, kept.index, half=self._half), kept, there
        except RuntimeError as error:
            file.refuse(f"cannot be read by this FAISS: {str(error).splitlines()[0]}")
            return None

    def _take_over(self, units: Sequence[Unit], rows: Rows, index: RowIndex, kept: Kept, there: Mask) -> bool:
        """Put a read index in place of none, with the units that were added since. False if there is one by now."""
        if len(self._slots):
            return False
        held = int(np.count_nonzero(there))
        order = iter(units)
        stand = [
            next(order) if alive else replace(units[0], id=key) for key, alive in zip(kept.ids, there, strict=True)
        ]
        self._slots.add(stand)
        self._slots.remove([key for key, alive in zip(kept.ids, there, strict=True) if not alive])
        self._rows = np.zeros((len(stand), rows.shape[1]), dtype=np.float32)
        self._rows[there] = rows[:held]
        self._index, self._built, self._written = index, len(stand), len(stand)
        if len(units) > held:
            self._append(units[held:], rows[held:])
        if self._slots.wasteful:
            self._compact()
        return True

    # -- searching --------------------------------------------------------------------------------------------------

    def _nearest(self, queries: Rows, k: int, scope: Scope | None) -> list[list[Match]]:
        admitted = self._slots.admitted(scope)
        count = int(np.count_nonzero(admitted))
        if self._index is None or not count:
            return [[] for _ in queries]
        everything = count == len(admitted)
        scores, slots = self._index.propose(queries, 2 * k + 64, None if everything else admitted)
        return [self._decide(*case, k, admitted, count) for case in zip(queries, scores, slots, strict=True)]

    def _decide(
        self, query: Rows, scores: Rows, slots: NDArray[np.int64], k: int, admitted: Mask, count: int
    ) -> list[Match]:
        """The best `k` of the proposed slots, or of all when the proposal may lack one of them."""
        margin = _HALF if self._half else _SINGLE
        there = slots >= 0
        there[there] = admitted[slots[there]]
        proposed, near = slots[there], scores[there]
        worth = near >= near[k - 1] - 2 * margin if len(near) > k else slice(None)  # those that can be among the best
        matches = self._ranked(query, proposed[worth], k)
        if len(proposed) == count or (len(matches) == k and scores[-1] + margin < matches[-1].score):
            return matches
        return self._ranked(query, self._scan(query, k, admitted), k)

    def _scan(self, query: Rows, k: int, admitted: Mask) -> NDArray[np.intp]:
        """The admitted slots that can be among the best `k`, from every row: for ties beyond `k`, or few far apart."""
        slots = np.flatnonzero(admitted)
        if k >= len(slots):
            return slots
        few = 4 * len(slots) < len(admitted)
        scores = self._rows[slots] @ query if few else (self._rows[: len(admitted)] @ query)[slots]
        bar = np.partition(scores, -k)[-k] - 2 * _SINGLE
        return slots[np.flatnonzero(scores >= bar)]

    def _ranked(self, query: Rows, slots: NDArray[np.int64], k: int) -> list[Match]:
        scores = _products(self._rows, slots, query)
        order = best(scores, slots, k)
        return self._slots.matches(slots[order], scores[order])


def settle_all() -> None:
    """Wait until no retriever of this process builds behind: to measure searches, not the building beside them."""
    for thread in threading.enumerate():
        if thread.name == _BUILDER:
            thread.join()


def _products(rows: Rows, slots: NDArray[np.int64], query: Rows) -> NDArray[np.float64]:
    """Inner products in double precision. Each row is summed alike, so equal rows score equally (BLAS differs here)."""
    wide = query.astype(np.float64)
    parts = [
        (rows[slots[start : start + _BLOCK]].astype(np.float64) * wide).sum(axis=1)
        for start in range(0, len(slots), _BLOCK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)
