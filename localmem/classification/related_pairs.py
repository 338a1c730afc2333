"""Only pairs about one matter are classified; sentences that are far apart by their vectors are both kept.

Most pairs of a real memory have nothing to do with each other. Without this, a classifier that learned from pairs of
one matter would now and then replace what it should leave, and each of them would cost its time.
"""

from collections.abc import Sequence

import numpy as np

from localmem.classification import OPERATIONS, OperationLabel, PairClassifier
from localmem.retrieval.base import Encoder

_RELATED = 0.4  # the cosine; of the shipped pairs, 2 % of what replaces lies below it
_APART = OperationLabel("APPEND", {name: float(name == "APPEND") for name in OPERATIONS})


class RelatedPairClassifier:
    """A PairClassifier that asks `inner` about the pairs whose cosine is high enough; the others are APPEND."""

    def __init__(self, inner: PairClassifier, encoder: Encoder) -> None:
        self._inner = inner
        self._encoder = encoder

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        """The operation for each (memory, sentence)."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        rows = dict(zip(texts, np.asarray(self._encoder.encode(texts, "passage")), strict=True)) if texts else {}
        related = [bool(rows[old] @ rows[new] >= _RELATED) for old, new in pairs]
        labels = iter(self._inner.classify([pair for pair, near in zip(pairs, related, strict=True) if near]))
        return [next(labels) if near else _APART for near in related]
