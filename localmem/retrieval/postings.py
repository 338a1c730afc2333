"""Postings: how often each term stands in each slot, looked up by term, and cheap to add to.

Knows neither words nor scores. A term and a slot are one number, the term in its upper 32 bits, in sorted runs: what is
added is a short run of its own, and runs are merged when they have become alike in size, so that an addition costs
little whatever is there, and a look-up reads few runs. How many terms a slot holds stands beside each of them, since to
look it up slot by slot takes longer than all else that is done with a list.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True)
class _Run:
    """Sorted keys, how often the term stands there, and how many terms that slot holds; counts are whole below 2^24."""

    keys: Ints
    counts: Floats
    lengths: Floats

    @property
    def memory(self) -> int:
        return self.keys.nbytes + self.counts.nbytes + self.lengths.nbytes


@dataclass(frozen=True, slots=True)
class Found:
    """Entries, one for each of the terms that a slot holds; `sizes` (runs x terms) says how many each has in a row."""

    slots: Ints
    counts: Floats
    lengths: Floats
    sizes: Ints

    def spread(self, values: NDArray[Number]) -> NDArray[Number]:
        """For each entry the value of its term."""
        spread: NDArray[Number] = np.repeat(np.tile(values, len(self.sizes)), self.sizes.ravel())
        return spread


_SLOT = 0xFFFFFFFF
_GROWTH = 4  # a run is merged into the one before it when it is at least so small a part of it


class Postings:
    """Empty at first. Not locked: the index that owns it is."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    @property
    def memory(self) -> int:
        """Bytes of the runs."""
        return sum(run.memory for run in self._runs)

    def add(self, start: int, units: Sequence[Sequence[int]]) -> None:
        """The terms of the units in the slots from `start` on, which no unit had before."""
        terms = np.fromiter(chain.from_iterable(units), dtype=np.int64)
        lengths = [len(terms) for terms in units]
        slots = np.repeat(np.arange(start, start + len(units)), lengths)
        keys, counts = np.unique(terms << 32 | slots, return_counts=True)
        sizes = np.array(lengths, dtype=np.float32)[(keys & _SLOT) - start]
        self._runs.append(_Run(keys, counts.astype(np.float32), sizes))
        while len(self._runs) > 1 and len(self._runs[-1].keys) * _GROWTH >= len(self._runs[-2].keys):
            last = self._runs.pop()
            self._runs.append(_merged(self._runs.pop(), last))

    def of(self, terms: Sequence[int]) -> Found:
        """The slots that hold each of the terms; a slot stands once for each term it holds."""
        wanted = np.array(terms, dtype=np.int64)
        firsts = np.array([np.searchsorted(run.keys, wanted << 32) for run in self._runs], dtype=np.int64)
        ends = np.array([np.searchsorted(run.keys, (wanted + 1) << 32) for run in self._runs], dtype=np.int64)
        cuts = [
            (run, slice(*cut))
            for run, *bounds in zip(self._runs, firsts.tolist(), ends.tolist(), strict=True)
            for cut in zip(*bounds, strict=True)
        ]
        return Found(
            slots=_joined(cuts, lambda run: run.keys, np.int64) & _SLOT,
            counts=_joined(cuts, lambda run: run.counts, np.float32),
            lengths=_joined(cuts, lambda run: run.lengths, np.float32),
            sizes=ends - firsts,
        )

    def keep(self, kept: NDArray[np.intp]) -> None:
        """Only these slots, which become 0, 1, 2, ..."""
        self._runs = [_kept(run, kept) for run in self._runs]


def _joined(
    cuts: Sequence[tuple[_Run, slice]], of: Callable[[_Run], NDArray[np.generic]], kind: type[np.generic]
) -> NDArray[Any]:
    return np.concatenate([of(run)[cut] for run, cut in cuts]) if cuts else np.zeros(0, dtype=kind)


def _merged(older: _Run, newer: _Run) -> _Run:
    at = np.searchsorted(older.keys, newer.keys)
    return _Run(
        np.insert(older.keys, at, newer.keys),
        np.insert(older.counts, at, newer.counts),
        np.insert(older.lengths, at, newer.lengths),
    )


def _kept(run: _Run, kept: NDArray[np.intp]) -> _Run:
    slots = run.keys & _SLOT
    at = np.searchsorted(kept, slots)
    left = kept[np.minimum(at, len(kept) - 1)] == slots if len(kept) else np.zeros(len(slots), dtype=np.bool_)
    return _Run(run.keys[left] >> 32 << 32 | at[left], run.counts[left], run.lengths[left])
