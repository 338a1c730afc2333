"""How far two segmentations of a dialogue agree: F1 of the boundaries, P_k, WindowDiff, and SeCom's Score of the three.

The protocol is SuperDialSeg's, which SeCom follows (section 3.3): a measure of each dialogue, then the mean over all.
Knows no segmenter and no data set.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Agreement(NamedTuple):
    """Each from 0 to 1; of `f1` and `score` 1 is best, of the two errors 0."""

    f1: float
    p_k: float
    window_diff: float

    @property
    def score(self) -> float:
        """(2 F1 + (1 - P_k) + (1 - WD)) / 4 (SeCom, section 3.3, footnote 5)."""
        return (2 * self.f1 + (1 - self.p_k) + (1 - self.window_diff)) / 4


def agreement(right: Sequence[range], predicted: Sequence[range]) -> Agreement:
    """How far `predicted` agrees with `right`, both of one dialogue."""
    return Agreement(f1(right, predicted), p_k(right, predicted), window_diff(right, predicted))


def mean_agreement(found: Sequence[Agreement]) -> Agreement:
    """Each measure's mean over dialogues; of none, the worst."""
    if not found:
        return Agreement(0.0, 1.0, 1.0)
    return Agreement(*(sum(column) / len(found) for column in zip(*found, strict=True)))


def f1(right: Sequence[range], predicted: Sequence[range]) -> float:
    """Of the boundaries that stand at the same place; 0 where neither has one, as SuperDialSeg counts it."""
    ours, theirs = _ends(right), _ends(predicted)
    return 2 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 0.0


def p_k(right: Sequence[range], predicted: Sequence[range], size: int | None = None) -> float:
    """The share of windows that hold a boundary in one and none in the other (Beeferman et al., 1999)."""
    pairs = _windows(right, predicted, size)
    return sum((ours > 0) != (theirs > 0) for ours, theirs in pairs) / max(1, len(pairs))


def window_diff(right: Sequence[range], predicted: Sequence[range], size: int | None = None) -> float:
    """The share of windows in which the number of boundaries differs (Pevzner and Hearst, 2002).

    A window is `size` utterances; without one, half the mean length of the right segments, at least 2, as SuperDialSeg
    has it.
    """
    pairs = _windows(right, predicted, size)
    return sum(ours != theirs for ours, theirs in pairs) / max(1, len(pairs))


def window(right: Sequence[range]) -> int:
    """Half the mean length of the segments, rounded, at least 2."""
    return max(2, round(right[-1].stop / len(right) / 2)) if right else 2


def _windows(right: Sequence[range], predicted: Sequence[range], size: int | None) -> list[tuple[int, int]]:
    """How many boundaries each window holds, in the right segmentation and in the other."""
    count = right[-1].stop if right else 0
    size = min(size or window(right), count)
    ours, theirs = _ends(right), _ends(predicted)
    starts = range(count - size + 1) if count else ()
    return [(_within(ours, at, size), _within(theirs, at, size)) for at in starts]


def _within(ends: set[int], start: int, size: int) -> int:
    return sum(number in ends for number in range(start, start + size))


def _ends(segments: Sequence[range]) -> set[int]:
    """The utterances after which a segment ends, the last of the dialogue left out."""
    return {segment.stop - 1 for segment in segments[:-1]}
