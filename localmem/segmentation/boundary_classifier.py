"""A trained segmenter: a classifier reads the text before and after each gap of a session (SeCom, section 3.3).

The classifier is any BERT-like model trained by `localmem finetune segmenter`, used in place of the LLM. How a gap
becomes a pair of texts is defined here, for training and use.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from localmem.classification.pair_classifier import PairModel
from localmem.errors import BadInput
from localmem.files import parse
from localmem.segmentation.segmenters import segments_between
from localmem.text.dialogue import transcript
from localmem.types import Session

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
        gaps, column = self._gaps(), self._column()
        texts = [exchange_texts(session) for session in sessions]
        pairs = [pair for exchanges in texts for pair in gaps.pairs(exchanges)]
        scores = iter(self._model.probabilities(pairs)[:, column] if pairs else ())
        segments = []
        for exchanges in texts:
            starts = {gap for gap in range(1, len(exchanges)) if next(scores) >= gaps.threshold}
            segments.append(segments_between(starts, len(exchanges)) if exchanges else [])
        return segments

    def _column(self) -> int:
        if BOUNDARY not in self._model.labels:
            raise BadInput(
                f"a segmenter needs the label {BOUNDARY!r}; the model's labels are {list(self._model.labels)}"
            )
        return self._model.labels.index(BOUNDARY)

    def _gaps(self) -> Gaps:
        return parse("the segmenter's config", dict(self._model.notes), Gaps, "train the segmenter again")


def exchange_texts(session: Session) -> list[str]:
    """The transcript of each exchange."""
    return [transcript(exchange.turns()) for exchange in session.exchanges()]
