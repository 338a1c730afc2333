"""Segments without training: a session is cut where what is said before and after is least alike (TextTiling).

Hearst, Computational Linguistics 23 (1997), with sentence vectors in place of word counts, as SuperDialSeg's baselines
have it. Knows an encoder by its contract only; the free baseline of every other segmenter.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localmem.retrieval.base import Encoder
from localmem.segmentation.segmenters import between
from localmem.text.dialogue import transcript
from localmem.types import Session

Floats = NDArray[np.float64]


class TextTiling:
    """Cuts a session at each gap that is deeper than the session's mean depth by `cut` standard deviations.

    A gap's likeness is the cosine of the mean vectors of the `width` exchanges on either side; its depth is how far it
    lies below the nearest peaks to the left and to the right. Sessions are encoded together.
    """

    def __init__(self, encoder: Encoder, *, width: int = 2, cut: float = 0.5) -> None:
        self._encoder = encoder
        self._width = width
        self._cut = cut

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        texts = [[transcript(exchange.turns()) for exchange in session.exchanges()] for session in sessions]
        rows = iter(self._encoder.encode([text for held in texts for text in held], "passage"))
        return [self._segments(np.array([next(rows) for _ in held], dtype=np.float64)) for held in texts]

    def _segments(self, rows: Floats) -> list[range]:
        count = len(rows)
        if count < 2:
            return [range(count)] if count else []
        deep = depths(likeness(rows, self._width))
        cut = np.flatnonzero((deep > deep.mean() + self._cut * deep.std()) & (deep > 0))
        return between({int(gap) + 1 for gap in cut}, count)


def likeness(rows: Floats, width: int) -> Floats:
    """(n - 1,) cosines across the gaps of n exchanges."""
    sides = [(rows[max(0, gap - width) : gap].mean(0), rows[gap : gap + width].mean(0)) for gap in range(1, len(rows))]
    return np.array([left @ right / (np.linalg.norm(left) * np.linalg.norm(right) or 1.0) for left, right in sides])


def depths(alike: Floats) -> Floats:
    """For each gap half the sum of its distances to the nearest peak on the left and on the right."""
    return (_climb(alike) + _climb(alike[::-1])[::-1] - 2 * alike) / 2


def _climb(alike: Floats) -> Floats:
    """The height of the peak that is reached from each gap by going left for as long as it does not go down."""
    peaks = alike.copy()
    for gap in range(1, len(peaks)):
        if alike[gap - 1] >= alike[gap]:
            peaks[gap] = peaks[gap - 1]
    return peaks
