"""Agreement of two segmentations of a dialogue: F1 of the boundaries, P_k, WindowDiff, and SeCom's Score of the three.

The protocol is SuperDialSeg's, which SeCom follows (section 3.3): a measure of each dialogue, then the mean over all.
Does not depend on a segmenter or a data set.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Agreement(NamedTuple):
    """Each from 0 to 1; 1 is best for `f1` and `score`, 0 for the two errors."""

    f1: float
    p_k: float
    window_diff: float

    @property
    def score(self) -> float:
        """(2 F1 + (1 - P_k) + (1 - WD)) / 4 (SeCom, section 3.3, footnote 5)."""
        return (2 * self.f1 + (1 - self.p_k) + (1 - self.window_diff)) / 4


def agreement(reference: Sequence[range], predicted: Sequence[range]) -> Agreement:
    """All measures of `predicted` against `reference`, both of the same dialogue."""
    return Agreement(f1(reference, predicted), p_k(reference, predicted), window_diff(reference, predicted))


def mean_agreement(agreements: Sequence[Agreement]) -> Agreement:
    """Each measure's mean over dialogues; the worst values if there are none."""
    if not agreements:
        return Agreement(0.0, 1.0, 1.0)
    return Agreement(*(sum(column) / len(agreements) for column in zip(*agreements, strict=True)))


def f1(reference: Sequence[range], predicted: Sequence[range]) -> float:
    """F1 of the boundaries at exactly the same place; 0 if neither has one, as SuperDialSeg counts it."""
    ours, theirs = _boundaries(reference), _boundaries(predicted)
    return 2 * len(ours & theirs) / (len(ours) + len(theirs)) if ours or theirs else 0.0


def p_k(reference: Sequence[range], predicted: Sequence[range], size: int | None = None) -> float:
    """The share of windows with a boundary in one segmentation and none in the other (Beeferman et al., 1999)."""
    pairs = _window_counts(reference, predicted, size)
    return sum((ours > 0) != (theirs > 0) for ours, theirs in pairs) / max(1, len(pairs))


def window_diff(reference: Sequence[range], predicted: Sequence[range], size: int | None = None) -> float:
    """The share of windows in which the number of boundaries differs (Pevzner and Hearst, 2002).

    A window has `size` utterances; by default half the mean length of the reference segments, at least 2, as in
    SuperDialSeg.
    """
    pairs = _window_counts(reference, predicted, size)
    return sum(ours != theirs for ours, theirs in pairs) / max(1, len(pairs))


def window_size(reference: Sequence[range]) -> int:
    """Half the mean length of the segments, rounded, at least 2."""
    return max(2, round(reference[-1].stop / len(reference) / 2)) if reference else 2


def _window_counts(reference: Sequence[range], predicted: Sequence[range], size: int | None) -> list[tuple[int, int]]:
    """The number of boundaries in each window, in the reference and in the prediction."""
    count = reference[-1].stop if reference else 0
    size = min(size or window_size(reference), count)
    ours, theirs = _boundaries(reference), _boundaries(predicted)
    starts = range(count - size + 1) if count else ()
    return [(_count_within(ours, start, size), _count_within(theirs, start, size)) for start in starts]


def _count_within(boundaries: set[int], start: int, size: int) -> int:
    return sum(number in boundaries for number in range(start, start + size))


def _boundaries(segments: Sequence[range]) -> set[int]:
    """The utterances after which a segment ends, without the last of the dialogue."""
    return {segment.stop - 1 for segment in segments[:-1]}
