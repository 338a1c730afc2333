"""Segmenters without the backbone: TextTiling, plain or with learned cuts, and a trained classifier of gaps.

TextTiling cuts a session where the texts before and after are least similar (Hearst, Computational Linguistics 23,
1997; sentence vectors in place of word counts, as in SuperDialSeg's baselines). It is the baseline of every other
segmenter. With learned cuts, a linear model reads each gap's similarities, a few cues and the vectors next to it; it is
trained by `localmem finetune texttiling`. Either costs one encoding of each exchange.

The classifier is any BERT-like model trained by `localmem finetune segmenter`; it reads the text before and after each
gap of a session (SeCom, section 3.3) in place of the LLM. How a gap becomes a pair of texts is defined here, for
training and use.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from localmem.classification.pair_classifier import PairModel
from localmem.errors import BadInput
from localmem.files import parse, read_json, write_atomic
from localmem.retrieval.base import Encoder
from localmem.segmentation.segmenters import segments_between
from localmem.text.dialogue import transcript
from localmem.types import Exchange, Session

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

    def cut(self, texts: Sequence[str]) -> list[range]:
        """The segments of one dialogue, given as the text of each exchange."""
        return self._segments(np.array(self._encoder.encode(texts, "passage"), dtype=np.float64))

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


FILE = "tiling.json"  # in the folder of an encoder's weights
PLAIN = 75  # features before the two vectors: 25 of a gap, and those of its neighbours
_WIDTHS = (1, 2, 3)  # exchanges on either side whose mean vectors are compared


class TilingModel(BaseModel):
    """The trained weights; a gap whose probability reaches `threshold` is a boundary."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: tuple[float, ...]
    bias: float
    threshold: float

    @classmethod
    def load(cls, folder: Path) -> "TilingModel":
        """Reads the folder's file. Raises BadInput if that fails."""
        path = folder / FILE
        return read_json(path, cls, "train the segmenter again")

    def save(self, folder: Path) -> None:
        """Writes the file into the folder."""
        write_atomic(folder / FILE, self.model_dump_json() + "\n")

    def probabilities(self, features: Floats) -> Floats:
        """(gaps,) from (gaps, features). Raises BadInput for features of another encoder's width."""
        if features.shape[1] != len(self.weights):
            raise BadInput(
                f"the encoder gives {features.shape[1]} features, but the segmenter has {len(self.weights)} weights; "
                "use the encoder it was trained with"
            )
        probabilities: Floats = 1 / (1 + np.exp(-(features @ np.array(self.weights) + self.bias)))
        return probabilities


class LearnedTextTiling:
    """A Segmenter over an encoder. Sessions are encoded together."""

    def __init__(self, encoder: Encoder, model: TilingModel) -> None:
        self._encoder = encoder
        self._model = model

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        return [self._segments(features) for features in gap_features(self._encoder, sessions)]

    def _segments(self, features: Floats | None) -> list[range]:
        if features is None:
            return []
        starts = np.flatnonzero(self._model.probabilities(features) >= self._model.threshold) + 1
        return segments_between(set(starts.tolist()), len(features) + 1)


@dataclass(frozen=True, slots=True)
class _Cues:
    """For each exchange: whether it contains a question, its length, whether the first speaker begins it."""

    asks: Floats
    words: Floats
    first: Floats

    @classmethod
    def of(cls, exchanges: Sequence[Exchange]) -> "_Cues":
        texts = [_text(exchange) for exchange in exchanges]
        speakers = [exchange.turns()[0].speaker for exchange in exchanges]
        return cls(
            np.array(["?" in text for text in texts], dtype=np.float64),
            np.log1p([len(text.split()) for text in texts]),
            np.array([speaker == speakers[0] for speaker in speakers], dtype=np.float64),
        )

    def columns(self) -> list[Floats]:
        """For each gap, the cues of the exchanges before and after it."""
        sides = [side for cue in (self.asks, self.words, self.first) for side in (cue[:-1], cue[1:])]
        return [*sides, (1 - self.asks[:-1]) * self.asks[1:]]


def gap_features(encoder: Encoder, sessions: Sequence[Session]) -> list[Floats | None]:
    """(gaps, features) of each session, None for a session without exchanges.

    The features are the gap's own, those of the gaps before and after it, and the vectors of the exchanges around it.
    """
    dialogues = [session.exchanges() for session in sessions]
    texts = [_text(exchange) for exchanges in dialogues for exchange in exchanges]
    rows = iter(encoder.encode(texts, "passage") if texts else ())
    return [
        _features(np.array([next(rows) for _ in exchanges], dtype=np.float64), exchanges) if exchanges else None
        for exchanges in dialogues
    ]


def _features(rows: Floats, exchanges: Sequence[Exchange]) -> Floats:
    own = np.stack([*_similarities(rows), *_neighbour_cosines(rows), *_Cues.of(exchanges).columns()], axis=1)
    before, after = np.roll(own, 1, axis=0), np.roll(own, -1, axis=0)
    before[:1], after[-1:] = 0, 0
    return np.concatenate([own, before, after, rows[:-1], rows[1:]], axis=1)


def _similarities(rows: Floats) -> list[Floats]:
    """For several widths the similarity across each gap and its depth, absolute and relative to the session's gaps."""
    features: list[Floats] = []
    for width in _WIDTHS:
        similarity = similarities(rows, width)
        depth = depths(similarity)
        spread = depth.std() if len(depth) else 0.0
        features += [similarity, depth, (depth - _mean(depth)) / (spread + 1e-6), similarity - _mean(similarity)]
    return features


def _neighbour_cosines(rows: Floats) -> list[Floats]:
    """Cosines of single exchanges near each gap: the best across it, past it by one, and within either side."""
    count, gaps = len(rows), range(1, len(rows))
    near = [np.einsum("ij,ij->i", rows[:-step], rows[step:]) for step in (1, 2, 3)]  # not all pairs: their square

    def cosine(first: int, second: int) -> float:
        return float(near[second - first - 1][first]) if first >= 0 and second < count else 0.0

    backward = [max(cosine(other, gap) for other in range(max(0, gap - 3), gap)) for gap in gaps]
    forward = [max(cosine(gap - 1, other) for other in range(gap, min(gap + 3, count))) for gap in gaps]
    single = [[cosine(gap + a, gap + b) for gap in gaps] for a, b in ((-2, 0), (-1, 1), (0, 1), (-2, -1))]
    return [np.array(column, dtype=np.float64) for column in (backward, forward, *single)]


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else 0.0


def _text(exchange: Exchange) -> str:
    return " ".join(turn.text for turn in exchange.turns())


BOUNDARY = "boundary"  # the label of a gap at which a segment ends


@dataclass(frozen=True, slots=True)
class Gaps:
    """How a gap becomes a pair of texts: `before` and `after` exchanges, and the `words` of each side nearest to it.

    A gap whose probability reaches `threshold` is a boundary.
    """

    before: int = 2
    after: int = 2
    words: int = 96
    threshold: float = 0.5

    def pairs(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """The texts before and after each gap between consecutive exchanges."""
        return [self._pair(texts, gap) for gap in range(1, len(texts))]

    def notes(self) -> dict[str, object]:
        """The values as stored in a trained model's config."""
        return asdict(self)

    def _pair(self, texts: Sequence[str], gap: int) -> tuple[str, str]:
        before = "\n".join(texts[max(0, gap - self.before) : gap]).split(" ")
        after = "\n".join(texts[gap : gap + self.after]).split(" ")
        return " ".join(before[-self.words :]), " ".join(after[: self.words])


class BoundarySegmenter:
    """A Segmenter over a trained model. All gaps of all sessions are classified together."""

    def __init__(self, model: PairModel) -> None:
        self._model = model

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        if BOUNDARY not in self._model.labels:
            raise BadInput(
                f"a segmenter needs the label {BOUNDARY!r}; the model's labels are {list(self._model.labels)}"
            )
        gaps, column = self._gaps(), self._model.labels.index(BOUNDARY)
        texts = [exchange_texts(session) for session in sessions]
        pairs = [pair for exchanges in texts for pair in gaps.pairs(exchanges)]
        scores = iter(self._model.probabilities(pairs)[:, column] if pairs else ())
        segments = []
        for exchanges in texts:
            starts = {gap for gap in range(1, len(exchanges)) if next(scores) >= gaps.threshold}
            segments.append(segments_between(starts, len(exchanges)) if exchanges else [])
        return segments

    def _gaps(self) -> Gaps:
        return parse("the segmenter's config", dict(self._model.notes), Gaps, "train the segmenter again")


def exchange_texts(session: Session) -> list[str]:
    """The transcript of each exchange."""
    return [transcript(exchange.turns()) for exchange in session.exchanges()]
