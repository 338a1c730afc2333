"""Postings: how often each term occurs in each row, looked up by term and cheap to extend.

Knows neither words nor scores: terms and rows are numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

# Why not a dict of lists, one for each term: a bank grows by a few units at a time, between searches, and a new unit
# would append to as many lists as it has terms. Here a term and a row form one number, the term in the upper 32 bits,
# and all of these lie in sorted arrays ("runs"). All rows of a term are neighbours then, found by two binary searches
# and read without a copy, and adding a unit is one small sorted array.
#
# Why several runs: to insert into one array copies all of it for each addition. An addition is a run of its own, and a
# run is merged into the one before it as soon as it is at least a quarter of its size, as in a log-structured merge
# tree. So each entry is copied a number of times that is logarithmic in the size of the bank, and a look-up reads
# few runs (fewer than 8 after 61 additions, as the test asserts).
#
# Why the length of a row (how many terms it holds) is stored with each entry, although it is the same for all terms of
# a row: BM25 needs it for every entry, and gathering it row by row jumps through memory. Over 100,000 units, keeping
# it here and sorting only candidates (`top_candidates`) took a question's scores from 3.6 to 1.6 ms.
#
# Why a question's terms are looked up together: each numpy call costs microseconds whatever its size, and a question
# of 40 words over 1,000 units has short lists. One call for all terms took 0.28 ms in place of 0.64.

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class _Run:
    """Sorted keys, how often the term occurs in the row, and the row's length; float32 counts exactly up to 2^24."""

    keys: Ints
    counts: Floats
    lengths: Floats

    @property
    def memory(self) -> int:
        return self.keys.nbytes + self.counts.nbytes + self.lengths.nbytes


@dataclass(frozen=True, slots=True)
class Entries:
    """One entry for each pair of a term and a row that holds it.

    `rows`, `counts` and `lengths` run over the entries: by run, and within a run by term. `sizes` (runs x terms) says
    how many entries each term has in each run.
    """

    rows: Ints
    counts: Floats
    lengths: Floats
    sizes: Ints

    def spread(self, values: NDArray[Number]) -> NDArray[Number]:
        """For each entry the value of its term."""
        spread: NDArray[Number] = np.repeat(np.tile(values, len(self.sizes)), self.sizes.ravel())
        return spread


_ROW_BITS = 0xFFFFFFFF
_MERGE_RATIO = 4  # a run is merged into the one before it from this part of its size


class Postings:
    """Empty at first. Not locked: the index that owns it is."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    @property
    def memory(self) -> int:
        """Bytes of the runs."""
        return sum(run.memory for run in self._runs)

    def add(self, start: int, units: Sequence[Sequence[int]]) -> None:
        """Adds the terms of units in the rows from `start` on, which must be new."""
        terms = np.fromiter(chain.from_iterable(units), dtype=np.int64)
        lengths = [len(terms) for terms in units]
        rows = np.repeat(np.arange(start, start + len(units)), lengths)
        keys, counts = np.unique(terms << 32 | rows, return_counts=True)
        row_lengths = np.array(lengths, dtype=np.float32)[(keys & _ROW_BITS) - start]
        self._runs.append(_Run(keys, counts.astype(np.float32), row_lengths))
        while len(self._runs) > 1 and len(self._runs[-1].keys) * _MERGE_RATIO >= len(self._runs[-2].keys):
            newest = self._runs.pop()
            self._runs.append(_merge(self._runs.pop(), newest))

    def lookup(self, terms: Sequence[int]) -> Entries:
        """The entries of these terms, which must be different."""
        keys = np.array(terms, dtype=np.int64)
        starts = np.array([np.searchsorted(run.keys, keys << 32) for run in self._runs], dtype=np.int64)
        ends = np.array([np.searchsorted(run.keys, (keys + 1) << 32) for run in self._runs], dtype=np.int64)
        slices = [
            (run, slice(*bounds))
            for run, *lists in zip(self._runs, starts.tolist(), ends.tolist(), strict=True)
            for bounds in zip(*lists, strict=True)
        ]
        return Entries(
            rows=_gather(slices, lambda run: run.keys, np.int64) & _ROW_BITS,
            counts=_gather(slices, lambda run: run.counts, np.float32),
            lengths=_gather(slices, lambda run: run.lengths, np.float32),
            sizes=ends - starts,
        )

    def select(self, rows: NDArray[np.intp]) -> None:
        """Drops all rows but these, which are ascending and become 0, 1, 2, ..."""
        self._runs = [_select(run, rows) for run in self._runs]


def _gather(
    slices: Sequence[tuple[_Run, slice]], field: Callable[[_Run], NDArray[np.generic]], dtype: type[np.generic]
) -> NDArray[Any]:
    return np.concatenate([field(run)[part] for run, part in slices]) if slices else np.zeros(0, dtype=dtype)


def _merge(older: _Run, newer: _Run) -> _Run:
    places = np.searchsorted(older.keys, newer.keys)
    return _Run(
        np.insert(older.keys, places, newer.keys),
        np.insert(older.counts, places, newer.counts),
        np.insert(older.lengths, places, newer.lengths),
    )


def _select(run: _Run, rows: NDArray[np.intp]) -> _Run:
    run_rows = run.keys & _ROW_BITS
    renumbered = np.searchsorted(rows, run_rows)
    present = np.zeros(len(run_rows), dtype=np.bool_)
    if len(rows):
        present = rows[np.minimum(renumbered, len(rows) - 1)] == run_rows
    keys = run.keys[present] >> 32 << 32 | renumbered[present]
    return _Run(keys, run.counts[present], run.lengths[present])
