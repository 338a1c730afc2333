"""RowIds: unit ids to rows of growing arrays, and which rows a scope admits.

Knows a unit's id, time and speaker, and neither vectors nor words. Not locked: the index that owns it is.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from localmem.retrieval.base import Match, Scope, require_aware
from localmem.types import Unit

_FEW_DEAD = 1000  # dead rows that are not worth a compaction
_ROW_BYTES = 100  # of the list, the dict and the numbers that a row needs beside the arrays
_GROUPS_PER_MATCH = 16  # enough that few of the best scores share a group
_EPOCH, _TICK = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class RowIds:
    """Rows 0, 1, 2, ... in the order of addition; a removed unit leaves a dead row behind, which `len` counts too."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._rows: dict[str, int] = {}
        self._alive: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._times: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._speakers: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._speaker_numbers: dict[str, int] = {"": 0}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, unit_id: str) -> bool:
        return unit_id in self._rows

    @property
    def live_count(self) -> int:
        """How many units are present."""
        return len(self._rows)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """For each row whether its unit is present."""
        return self._alive[: len(self._ids)]

    @property
    def times(self) -> NDArray[np.int64]:
        """For each row the time of its unit's event, in microseconds since 1970."""
        return self._times[: len(self._ids)]

    @property
    def memory(self) -> int:
        return len(self) * _ROW_BYTES + self._alive.nbytes + self._times.nbytes + self._speakers.nbytes

    @property
    def ids(self) -> tuple[str, ...]:
        """For each row the id of its unit, present or removed."""
        return tuple(self._ids)

    def matches(self, rows: NDArray[np.integer], scores: NDArray[np.floating]) -> list[Match]:
        """The units at these rows, with their scores."""
        ids = self._ids
        return [Match(ids[row], score) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]

    def row_of(self, unit_id: str) -> int:
        """The row of a unit that is present."""
        return self._rows[unit_id]

    def new_indices(self, ids: Sequence[str]) -> list[int]:
        """Indices into `ids` of those that are not present, the first of any repeats."""
        first = {unit_id: index for index, unit_id in reversed(list(enumerate(ids)))}
        return [index for index, unit_id in enumerate(ids) if unit_id not in self._rows and first[unit_id] == index]

    def scope_mask(self, scope: Scope | None) -> NDArray[np.bool_]:
        """For each row whether its unit is present and within the scope."""
        mask = self.alive.copy()
        if scope is None:
            return mask
        if scope.speaker is not None:
            speakers = self._speakers[: len(self)]
            mask &= (speakers == 0) | (speakers == self._speaker_numbers.get(scope.speaker, 0))
        if scope.since is not None:
            mask &= self.times >= to_microseconds(scope.since)
        if scope.until is not None:
            mask &= self.times <= to_microseconds(scope.until)
        return mask

    def add(self, units: Sequence[Unit]) -> None:
        """Gives the next rows to these units, none of which may be present. Raises BadInput for a naive time."""
        times = [to_microseconds(require_aware(unit.time, f"the time of unit {unit.id!r}")) for unit in units]
        speakers = [self._speaker_numbers.setdefault(unit.speaker, len(self._speaker_numbers)) for unit in units]
        self._extend([unit.id for unit in units], np.array(times, dtype=np.int64), np.array(speakers, dtype=np.int32))

    def remove(self, ids: Sequence[str]) -> int:
        dead = [row for unit_id in ids if (row := self._rows.pop(unit_id, None)) is not None]
        self._alive[dead] = False
        return len(dead)

    @property
    def needs_compaction(self) -> bool:
        """Whether enough rows are dead for a compaction to pay: its cost is then spread over as many removals."""
        return len(self) - self.live_count > max(_FEW_DEAD, self.live_count // 4)

    def compact(self) -> NDArray[np.intp]:
        """Drops the dead rows. Returns the rows that were alive; they are now 0, 1, 2, ... in the same order."""
        alive = np.flatnonzero(self.alive)
        ids, times, speakers = [self._ids[row] for row in alive], self._times[alive], self._speakers[alive]
        self._ids, self._rows = [], {}
        self._extend(ids, times, speakers)
        return alive

    def _extend(self, ids: Sequence[str], times: NDArray[np.int64], speakers: NDArray[np.int32]) -> None:
        start, end = len(self._ids), len(self._ids) + len(ids)
        self._ids.extend(ids)
        self._rows.update(zip(ids, range(start, end), strict=True))
        if end > len(self._alive):
            spare = end - len(self._alive) + end // 4 + 64
            self._alive = np.pad(self._alive, (0, spare))
            self._times, self._speakers = np.pad(self._times, (0, spare)), np.pad(self._speakers, (0, spare))
        self._alive[start:end], self._times[start:end], self._speakers[start:end] = True, times, speakers


def to_microseconds(time: datetime) -> int:
    """An aware time in microseconds since 1970."""
    return (time - _EPOCH) // _TICK


def top_k(scores: NDArray[np.floating], rows: NDArray[np.integer], k: int) -> NDArray[np.intp]:
    """Indices into the two arrays of the `k` highest scores, best first, ties by row."""
    if k >= len(scores):
        k, near = len(scores), np.arange(len(scores))
    else:
        near = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    order: NDArray[np.intp] = np.lexsort((rows[near], -scores[near]))
    best: NDArray[np.intp] = near[order[:k]]
    return best


def top_candidates(scores: NDArray[np.floating], k: int) -> NDArray[np.intp]:
    """Indices, in order, of all scores that can be among the `k` highest, ties included, and of few others.

    The highest scores of at least `k` groups are at least `k` scores, so the k-th of them is a lower bound of the k-th
    score. Most of a long list is then compared only twice, and none of it is sorted.
    """
    groups = _GROUPS_PER_MATCH * k
    if len(scores) < 2 * groups:
        return np.arange(len(scores))
    end = len(scores) // groups * groups
    highest = scores[:end].reshape(-1, groups).max(axis=0)
    return np.flatnonzero(scores >= np.partition(highest, -k)[-k])
