"""Segments without training: a session is cut where the texts before and after are least similar (TextTiling).

Hearst, Computational Linguistics 23 (1997), with sentence vectors in place of word counts, as in SuperDialSeg's
baselines. The baseline of every other segmenter.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localmem.retrieval.base import Encoder
from localmem.segmentation.segmenters import segments_between
from localmem.text.dialogue import transcript
from localmem.types import Session

Floats = NDArray[np.float64]


class TextTiling:
    """Cuts a session at each gap that is deeper than the session's mean depth by `cut` standard deviations.

    A gap's similarity is the cosine of the mean vectors of the `width` exchanges on either side; its depth is its
    distance to the nearest peaks to the left and to the right. Sessions are encoded together.
    """

    def __init__(self, encoder: Encoder, *, width: int = 2, cut: float = 0.5) -> None:
        self._encoder = encoder
        self._width = width
        self._cut = cut

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        texts = [[transcript(exchange.turns()) for exchange in session.exchanges()] for session in sessions]
        rows = iter(self._encoder.encode([text for exchanges in texts for text in exchanges], "passage"))
        return [self._segments(np.array([next(rows) for _ in exchanges], dtype=np.float64)) for exchanges in texts]

    def _segments(self, rows: Floats) -> list[range]:
        count = len(rows)
        if count < 2:
            return [range(count)] if count else []
        depth = depths(similarities(rows, self._width))
        cuts = np.flatnonzero((depth > depth.mean() + self._cut * depth.std()) & (depth > 0))
        return segments_between({int(gap) + 1 for gap in cuts}, count)


def similarities(rows: Floats, width: int) -> Floats:
    """(n - 1,) cosines across the gaps of n exchanges."""
    sides = [(rows[max(0, gap - width) : gap].mean(0), rows[gap : gap + width].mean(0)) for gap in range(1, len(rows))]
    return np.array(
        [before @ after / (np.linalg.norm(before) * np.linalg.norm(after) or 1.0) for before, after in sides]
    )


def depths(similarity: Floats) -> Floats:
    """For each gap half the sum of its distances to the nearest peak on the left and on the right."""
    return (_climb(similarity) + _climb(similarity[::-1])[::-1] - 2 * similarity) / 2


def _climb(similarity: Floats) -> Floats:
    """The height of the peak that is reached from each gap by moving left as long as the value does not fall."""
    peaks = similarity.copy()
    for gap in range(1, len(peaks)):
        if similarity[gap - 1] >= similarity[gap]:
            peaks[gap] = peaks[gap - 1]
    return peaks
