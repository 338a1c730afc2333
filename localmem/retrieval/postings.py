"""Postings: how often each term stands in each slot, looked up by term, and cheap to add to.

Knows neither words nor scores. A term and a slot are one number, the term in its upper 32 bits, in sorted runs: what is
added is a short run of its own, and runs are merged when they have become alike in size, so that an addition costs
little whatever is there, and a look-up reads few runs.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Counts = NDArray[np.int32]
_Run = tuple[Ints, Counts]  # sorted keys, and the count of each

_GROWTH = 4  # a run is merged into the one before it when it is at least so small a part of it


class Postings:
    """Empty at first. Not locked: the index that owns it is."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    @property
    def memory(self) -> int:
        """Bytes of the runs."""
        return sum(keys.nbytes + counts.nbytes for keys, counts in self._runs)

    def add(self, start: int, units: Sequence[Sequence[int]]) -> None:
        """The terms of the units in the slots from `start` on, which no unit had before."""
        terms = np.fromiter(chain.from_iterable(units), dtype=np.int64)
        slots = np.repeat(np.arange(start, start + len(units)), [len(terms) for terms in units])
        keys, counts = np.unique(terms << 32 | slots, return_counts=True)
        self._runs.append((keys, counts.astype(np.int32)))
        while len(self._runs) > 1 and len(self._runs[-1][0]) * _GROWTH >= len(self._runs[-2][0]):
            last = self._runs.pop()
            self._runs.append(_merged(self._runs.pop(), last))

    def of(self, terms: Sequence[int]) -> tuple[Ints, Counts, Ints]:
        """The slots that hold each of the terms, how often they do, and which of `terms` it is that each slot holds.

        A slot stands once for each term it holds; the slots of one term stand in a row in each run.
        """
        wanted = np.array(terms, dtype=np.int64)
        found = [_found(run, wanted) for run in self._runs]
        if len(found) == 1:  # a large bank that was added at once is one run
            return found[0]
        nothing = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
        slots, counts, which = zip(nothing, *found, strict=True)
        return np.concatenate(slots), np.concatenate(counts), np.concatenate(which)

    def keep(self, kept: NDArray[np.intp]) -> None:
        """Only these slots, which become 0, 1, 2, ..."""
        self._runs = [_kept(run, kept) for run in self._runs]


def _found(run: _Run, terms: Ints) -> tuple[Ints, Counts, Ints]:
    keys, counts = run
    firsts, ends = np.searchsorted(keys, terms << 32), np.searchsorted(keys, (terms + 1) << 32)
    which = np.repeat(np.arange(len(terms)), ends - firsts)
    cuts = [slice(*cut) for cut in zip(firsts.tolist(), ends.tolist(), strict=True)]
    if not cuts:
        return keys[:0], counts[:0], which
    slots = np.concatenate([keys[cut] for cut in cuts]) & 0xFFFFFFFF
    return slots, np.concatenate([counts[cut] for cut in cuts]), which


def _merged(older: _Run, newer: _Run) -> _Run:
    at = np.searchsorted(older[0], newer[0])
    return np.insert(older[0], at, newer[0]), np.insert(older[1], at, newer[1])


def _kept(run: _Run, kept: NDArray[np.intp]) -> _Run:
    keys, counts = run
    slots = keys & 0xFFFFFFFF
    at = np.searchsorted(kept, slots)
    left = kept[np.minimum(at, len(kept) - 1)] == slots if len(kept) else np.zeros(len(slots), dtype=np.bool_)
    return keys[left] >> 32 << 32 | at[left], counts[left]
