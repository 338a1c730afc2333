"""Trained classifiers of sentence pairs: what a new sentence does to a remembered one, in one pass of a small model.

One learned the four operations; another learned inference only and is read through the paper's mapping. Knows no bank
and no system, and not what kind of model answers.
"""

from collections.abc import Sequence

from localmem.classification.nli_mapping import INFERENCES, operation
from localmem.classification.pair_classifier import PairModel
from localmem.errors import BadInput
from localmem.text.base import OPERATIONS, Labelled, PairClassifier


class TrainedClassifier:
    """A PairClassifier over a model that learned the operations (section 4.3)."""

    def __init__(self, model: PairModel) -> None:
        self._model = model

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[Labelled]:
        if not pairs:
            return []
        columns = [self._model.labels.index(name) for name in OPERATIONS]
        rows = self._model.probabilities(pairs)[:, columns].tolist()
        return [_most_probable(row) for row in rows]


class ZeroShotClassifier:
    """A PairClassifier over a model of inference: both directions of all pairs go out as one batch (section 5.1.1)."""

    def __init__(self, model: PairModel) -> None:
        self._model = model

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[Labelled]:
        if not pairs:
            return []
        labels = [label.lower() for label in self._model.labels]
        columns = [labels.index(name) for name in INFERENCES]
        both = [*pairs, *((second, first) for first, second in pairs)]
        rows = self._model.probabilities(both)[:, columns].tolist()
        verdicts = [dict(zip(INFERENCES, row, strict=True)) for row in rows]
        return [operation(*ways) for ways in zip(verdicts[: len(pairs)], verdicts[len(pairs) :], strict=True)]


def classifier_of(labels: Sequence[str], model: PairModel) -> PairClassifier:
    """What fits the labels that the model tells apart: the operations, or inferences. Raises BadInput for others."""
    if set(labels) == set(OPERATIONS):
        return TrainedClassifier(model)
    if {label.lower() for label in labels} == set(INFERENCES):
        return ZeroShotClassifier(model)
    known = ", ".join(labels) or "no labels"
    raise BadInput(
        f"the model tells {known} apart; a classifier needs {', '.join(OPERATIONS)} or {', '.join(INFERENCES)}"
    )


def _most_probable(row: Sequence[float]) -> Labelled:
    probabilities = dict(zip(OPERATIONS, row, strict=True))
    return Labelled(max(OPERATIONS, key=lambda name: probabilities[name]), probabilities)
