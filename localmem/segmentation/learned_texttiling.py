"""TextTiling that learned from people where to cut: each gap's likenesses, a few plain cues and the vectors beside it.

One number a feature, taught by `localmem finetune segmenter --light`; a session costs one encoding of each exchange, no
more than TextTiling does. Knows an encoder by its contract only, and no training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from localmem.errors import BadInput
from localmem.files import read_json, write_atomic
from localmem.retrieval.base import Encoder
from localmem.segmentation.segmenters import segments_between
from localmem.segmentation.texttiling import depths, likeness
from localmem.types import Exchange, Session

Floats = NDArray[np.float64]

FILE = "tiling.json"  # beside an encoder's weights
PLAIN = 75  # features before the two vectors: 25 of a gap, and those of its neighbours
_WIDTHS = (1, 2, 3)  # exchanges on either side whose mean vectors are compared


class TilingModel(BaseModel):
    """What training leaves: a gap is a boundary where the probability reaches `threshold`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: tuple[float, ...]
    bias: float
    threshold: float

    @classmethod
    def load(cls, folder: Path) -> "TilingModel":
        """Raises BadInput where the file cannot be read."""
        path = folder / FILE
        return read_json(path, cls, "train the segmenter again")

    def save(self, folder: Path) -> None:
        """Writes it into the folder."""
        write_atomic(folder / FILE, self.model_dump_json() + "\n")

    def probabilities(self, features: Floats) -> Floats:
        """(gaps,), of (gaps, features). Raises BadInput for features of another encoder's width."""
        if features.shape[1] != len(self.weights):
            raise BadInput(f"{features.shape[1]} features meet {len(self.weights)} weights: the encoder was exchanged")
        found: Floats = 1 / (1 + np.exp(-(features @ np.array(self.weights) + self.bias)))
        return found


class LearnedTextTiling:
    """A Segmenter over an encoder. Sessions are encoded together."""

    def __init__(self, encoder: Encoder, learned: TilingModel) -> None:
        self._encoder = encoder
        self._learned = learned

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        return [self._segments(features) for features in gap_features(self._encoder, sessions)]

    def _segments(self, features: Floats | None) -> list[range]:
        if features is None:
            return []
        starts = np.flatnonzero(self._learned.probabilities(features) >= self._learned.threshold) + 1
        return segments_between(set(starts.tolist()), len(features) + 1)


@dataclass(frozen=True, slots=True)
class _Cues:
    """Of each exchange: whether something is asked in it, its length, whether the session's first speaker begins it."""

    asks: Floats
    words: Floats
    first: Floats

    @classmethod
    def of(cls, exchanges: Sequence[Exchange]) -> "_Cues":
        texts = [_said(exchange) for exchange in exchanges]
        speakers = [exchange.turns()[0].speaker for exchange in exchanges]
        return cls(
            np.array(["?" in text for text in texts], dtype=np.float64),
            np.log1p([len(text.split()) for text in texts]),
            np.array([speaker == speakers[0] for speaker in speakers], dtype=np.float64),
        )

    def columns(self) -> list[Floats]:
        """Of each gap, what stands before it and after it."""
        sides = [side for cue in (self.asks, self.words, self.first) for side in (cue[:-1], cue[1:])]
        return [*sides, (1 - self.asks[:-1]) * self.asks[1:]]


def gap_features(encoder: Encoder, sessions: Sequence[Session]) -> list[Floats | None]:
    """(gaps, features) of each session, None of one with no exchange.

    A gap's own features, those of the gaps before and after it, and the vectors of the exchanges beside it.
    """
    held = [session.exchanges() for session in sessions]
    texts = [_said(exchange) for exchanges in held for exchange in exchanges]
    rows = iter(encoder.encode(texts, "passage") if texts else ())
    return [_features(np.array([next(rows) for _ in one], dtype=np.float64), one) if one else None for one in held]


def _features(rows: Floats, exchanges: Sequence[Exchange]) -> Floats:
    own = np.stack([*_likenesses(rows), *_around(rows), *_Cues.of(exchanges).columns()], axis=1)
    before, after = np.roll(own, 1, axis=0), np.roll(own, -1, axis=0)
    before[:1], after[-1:] = 0, 0
    return np.concatenate([own, before, after, rows[:-1], rows[1:]], axis=1)


def _likenesses(rows: Floats) -> list[Floats]:
    """Of several widths the likeness across each gap and its depth, as they are and beside the session's other gaps."""
    found: list[Floats] = []
    for width in _WIDTHS:
        alike = likeness(rows, width)
        deep = depths(alike)
        spread = deep.std() if len(deep) else 0.0
        found += [alike, deep, (deep - _mean(deep)) / (spread + 1e-6), alike - _mean(alike)]
    return found


def _around(rows: Floats) -> list[Floats]:
    """Cosines of single exchanges near each gap: the best across it, past it by one, and within either side."""
    alike, gaps = rows @ rows.T, range(1, len(rows))

    def cosines(left: int, right: int) -> Floats:
        inside = [(gap + left, gap + right) for gap in gaps]
        return np.array([alike[a, b] if a >= 0 and b < len(rows) else 0.0 for a, b in inside])

    back = np.array([alike[max(0, gap - 3) : gap, gap].max() for gap in gaps])
    ahead = np.array([alike[gap - 1, gap : gap + 3].max() for gap in gaps])
    return [back, ahead, cosines(-2, 0), cosines(-1, 1), cosines(0, 1), cosines(-2, -1)]


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def _said(exchange: Exchange) -> str:
    return " ".join(turn.text for turn in exchange.turns())
