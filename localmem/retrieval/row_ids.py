"""RowIds: unit ids to positions in arrays that only grow, which is how the indexes keep their rows.

Knows nothing of vectors or words, only when a unit took place and whom it is about, which is what a scope asks. A
removed unit leaves a dead position behind; `compact` says which positions to keep. Not locked: its owner is.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from localmem.retrieval.base import Match, Scope, require_aware
from localmem.types import Unit

_FEW = 1000  # dead positions that are not worth a compaction
_OBJECTS = 100  # bytes of the list, the dict and the numbers that a position needs beside the arrays
_GROUPS = 16  # for each score that is wanted: so few of the best share a group that few besides are looked at
_EPOCH, _TICK = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class RowIds:
    """Positions 0, 1, 2, ... in the order of addition. `len` counts dead positions too."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._slot: dict[str, int] = {}
        self._alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._times: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._speakers: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._speaker_numbers: dict[str, int] = {"": 0}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, unit_id: str) -> bool:
        return unit_id in self._slot

    @property
    def live(self) -> int:
        """How many units are there."""
        return len(self._slot)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """For each position whether its unit is still there."""
        return self._alive[: len(self._ids)]

    @property
    def times(self) -> NDArray[np.int64]:
        """For each position when its unit took place, in microseconds since 1970."""
        return self._times[: len(self._ids)]

    @property
    def memory(self) -> int:
        """Bytes, about. The ids themselves belong to the units."""
        return len(self) * _OBJECTS + self._alive.nbytes + self._times.nbytes + self._speakers.nbytes

    @property
    def ids(self) -> tuple[str, ...]:
        """For each position the unit that stands or stood there."""
        return tuple(self._ids)

    def matches(self, slots: NDArray[np.integer], scores: NDArray[np.floating]) -> list[Match]:
        """The units at these positions, with their scores."""
        ids = self._ids
        return [Match(ids[slot], score) for slot, score in zip(slots.tolist(), scores.tolist(), strict=True)]

    def slot(self, unit_id: str) -> int:
        """Where a unit that is there stands."""
        return self._slot[unit_id]

    def unknown(self, ids: Sequence[str]) -> list[int]:
        """Which of `ids` (as indices into it) are not there yet, the first of any repeats."""
        first = {key: index for index, key in reversed(list(enumerate(ids)))}
        return [index for index, key in enumerate(ids) if key not in self._slot and first[key] == index]

    def admitted(self, scope: Scope | None) -> NDArray[np.bool_]:
        """For each position whether its unit is there and within the scope."""
        mask = self.alive.copy()
        if scope is None:
            return mask
        if scope.speaker is not None:
            speakers = self._speakers[: len(self)]
            mask &= (speakers == 0) | (speakers == self._speaker_numbers.get(scope.speaker, 0))
        if scope.since is not None:
            mask &= self.times >= micros(scope.since)
        if scope.until is not None:
            mask &= self.times <= micros(scope.until)
        return mask

    def add(self, units: Sequence[Unit]) -> None:
        """The next positions go to these units, none of which may be there. Raises BadInput for a naive time."""
        times = unit_times(units)
        speakers = [self._speaker_numbers.setdefault(unit.speaker, len(self._speaker_numbers)) for unit in units]
        self._extend([unit.id for unit in units], times, np.array(speakers, dtype=np.int32))

    def remove(self, ids: Sequence[str]) -> int:
        """How many of `ids` were there; they no longer are."""
        dead = [slot for key in ids if (slot := self._slot.pop(key, None)) is not None]
        self._alive[dead] = False
        return len(dead)

    @property
    def wasteful(self) -> bool:
        """Whether enough positions are dead for a compaction to pay: its cost is then spread over as many removals."""
        return len(self) - self.live > max(_FEW, self.live // 4)

    def compact(self) -> NDArray[np.intp]:
        """The positions that were alive; they are now 0, 1, 2, ... in the same order."""
        kept = np.flatnonzero(self.alive)
        ids, times, speakers = [self._ids[slot] for slot in kept], self._times[kept], self._speakers[kept]
        self._ids, self._slot = [], {}
        self._extend(ids, times, speakers)
        return kept

    def _extend(self, ids: Sequence[str], times: NDArray[np.int64], speakers: NDArray[np.int32]) -> None:
        start, end = len(self._ids), len(self._ids) + len(ids)
        self._ids.extend(ids)
        self._slot.update(zip(ids, range(start, end), strict=True))
        if end > len(self._alive):
            spare = end - len(self._alive) + end // 4 + 64
            self._alive = np.pad(self._alive, (0, spare))
            self._times, self._speakers = np.pad(self._times, (0, spare)), np.pad(self._speakers, (0, spare))
        self._alive[start:end], self._times[start:end], self._speakers[start:end] = True, times, speakers


def unit_times(units: Sequence[Unit]) -> NDArray[np.int64]:
    """When the units took place, in microseconds since 1970. Raises BadInput for a naive time."""
    return np.array(
        [micros(require_aware(unit.time, f"the time of unit {unit.id!r}")) for unit in units], dtype=np.int64
    )


def micros(time: datetime) -> int:
    """An aware time in microseconds since 1970."""
    return (time - _EPOCH) // _TICK


def best(scores: NDArray[np.floating], slots: NDArray[np.integer], k: int) -> NDArray[np.intp]:
    """Where in the two arrays the `k` highest scores stand, best first, ties by slot."""
    if k >= len(scores):
        k, near = len(scores), np.arange(len(scores))
    else:
        near = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    order: NDArray[np.intp] = np.lexsort((slots[near], -scores[near]))
    chosen: NDArray[np.intp] = near[order[:k]]
    return chosen


def contenders(scores: NDArray[np.floating], k: int) -> NDArray[np.intp]:
    """Where scores stand that can be among the `k` highest, ties included, in order: no less, and not many more.

    The highest scores of at least `k` groups are at least as many scores, so the `k`-th of them is a bar: most of a
    long list is so compared twice, and nothing of it is put in order.
    """
    groups = _GROUPS * k
    if len(scores) < 2 * groups:
        return np.arange(len(scores))
    whole = len(scores) // groups * groups
    heads = scores[:whole].reshape(-1, groups).max(axis=0)
    return np.flatnonzero(scores >= np.partition(heads, -k)[-k])
