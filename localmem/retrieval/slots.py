"""Slots: unit ids to positions in arrays that only grow, which is how the indexes keep their rows.

Knows nothing of vectors or words. A removed unit leaves a dead position behind; `compact` says which positions to keep.
Not locked: the index that owns it is.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_FEW = 1000  # dead positions that are not worth a compaction


class Slots:
    """Positions 0, 1, 2, ... in the order of addition. `len` counts dead positions too."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._slot: dict[str, int] = {}
        self._alive: NDArray[np.bool_] = np.zeros(64, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def live(self) -> int:
        """How many units are there."""
        return len(self._slot)

    @property
    def alive(self) -> NDArray[np.bool_]:
        """For each position whether its unit is still there."""
        return self._alive[: len(self._ids)]

    def id(self, slot: int) -> str:
        return self._ids[slot]

    def unknown(self, ids: Sequence[str]) -> list[int]:
        """Which of `ids` (as indices into it) are not there yet, the first of any repeats."""
        first = {key: index for index, key in reversed(list(enumerate(ids)))}
        return [index for index, key in enumerate(ids) if key not in self._slot and first[key] == index]

    def add(self, ids: Sequence[str]) -> None:
        """The next positions go to these ids, none of which may be there."""
        start, end = len(self._ids), len(self._ids) + len(ids)
        self._ids.extend(ids)
        self._slot.update(zip(ids, range(start, end), strict=True))
        if end > len(self._alive):
            self._alive = np.concatenate([self._alive, np.zeros(end, dtype=np.bool_)])
        self._alive[start:end] = True

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
        ids = [self._ids[slot] for slot in kept]
        self._ids, self._slot = [], {}
        self._alive[:] = False
        self.add(ids)
        return kept


def best(scores: NDArray[np.floating], slots: NDArray[np.integer], k: int) -> NDArray[np.intp]:
    """Where in the two arrays the `k` highest scores stand, best first, ties by slot."""
    if k >= len(scores):
        k, near = len(scores), np.arange(len(scores))
    else:
        near = np.flatnonzero(scores >= np.partition(scores, -k)[-k])
    order: NDArray[np.intp] = np.lexsort((slots[near], -scores[near]))
    chosen: NDArray[np.intp] = near[order[:k]]
    return chosen
