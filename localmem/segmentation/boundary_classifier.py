"""A trained segmenter: a classifier reads what stands before and after each gap of a session (SeCom, section 3.3).

A trained encoder can stand in for the LLM: any BERT-like model, as `localmem finetune segmenter` leaves it.
Knows no training; how a gap becomes a pair of texts is decided here, for both.
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
    """How a gap is shown: so many exchanges on either side, of each side at most so many words nearest to the gap.

    A gap whose probability reaches `threshold` is a boundary.
    """

    before: int = 2
    after: int = 2
    words: int = 96
    threshold: float = 0.5

    def pairs(self, texts: Sequence[str]) -> list[tuple[str, str]]:
        """For each gap between consecutive exchanges what stands before it and after it."""
        return [self._pair(texts, gap) for gap in range(1, len(texts))]

    def notes(self) -> dict[str, object]:
        """As a trained model's config carries it."""
        return asdict(self)

    def _pair(self, texts: Sequence[str], gap: int) -> tuple[str, str]:
        left = "\n".join(texts[max(0, gap - self.before) : gap]).split(" ")
        right = "\n".join(texts[gap : gap + self.after]).split(" ")
        return " ".join(left[-self.words :]), " ".join(right[: self.words])


class BoundarySegmenter:
    """A Segmenter over a trained model. All gaps of all sessions go through it together."""

    def __init__(self, model: PairModel) -> None:
        self._model = model

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        gaps, column = self._gaps(), self._column()
        texts = [exchange_texts(session) for session in sessions]
        pairs = [pair for held in texts for pair in gaps.pairs(held)]
        scores = iter(self._model.probabilities(pairs)[:, column] if pairs else ())
        found = []
        for held in texts:
            starts = {gap for gap in range(1, len(held)) if next(scores) >= gaps.threshold}
            found.append(segments_between(starts, len(held)) if held else [])
        return found

    def _column(self) -> int:
        if BOUNDARY not in self._model.labels:
            raise BadInput(f"a segmenter tells {BOUNDARY!r}; this model's labels are {list(self._model.labels)}")
        return self._model.labels.index(BOUNDARY)

    def _gaps(self) -> Gaps:
        return parse("the segmenter's config", dict(self._model.notes), Gaps, "train the segmenter again")


def exchange_texts(session: Session) -> list[str]:
    """Each exchange as a gap's sides show it."""
    return [transcript(exchange.turns()) for exchange in session.exchanges()]
