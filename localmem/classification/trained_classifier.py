"""Trained classifiers of sentence pairs: operations in one pass of a small model.

One kind of model learned the four operations, the other natural language inference, read with the paper's mapping.
"""

from collections.abc import Sequence

from localmem.classification import OPERATIONS, OperationLabel, PairClassifier
from localmem.classification.nli_mapping import INFERENCES, operation_from_inference
from localmem.classification.pair_classifier import PairModel
from localmem.errors import BadInput


class TrainedClassifier:
    """A PairClassifier over a model that learned the operations (section 4.3)."""

    def __init__(self, model: PairModel) -> None:
        self._model = model

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        if not pairs:
            return []
        columns = [self._model.labels.index(name) for name in OPERATIONS]
        rows = self._model.probabilities(pairs)[:, columns].tolist()
        return [_most_probable(row) for row in rows]


class ZeroShotClassifier:
    """A PairClassifier over a model of inference: both directions of all pairs go out as one batch (section 5.1.1)."""

    def __init__(self, model: PairModel) -> None:
        self._model = model

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        if not pairs:
            return []
        labels = [label.lower() for label in self._model.labels]
        columns = [labels.index(name) for name in INFERENCES]
        both = [*pairs, *((second, first) for first, second in pairs)]
        rows = self._model.probabilities(both)[:, columns].tolist()
        verdicts = [dict(zip(INFERENCES, row, strict=True)) for row in rows]
        return [
            operation_from_inference(*ways) for ways in zip(verdicts[: len(pairs)], verdicts[len(pairs) :], strict=True)
        ]


def classifier_of(labels: Sequence[str], model: PairModel) -> PairClassifier:
    """The classifier for a model with these labels: operations or inferences. Raises BadInput for others."""
    if set(labels) == set(OPERATIONS):
        return TrainedClassifier(model)
    if {label.lower() for label in labels} == set(INFERENCES):
        return ZeroShotClassifier(model)
    names = ", ".join(labels) or "none"
    allowed = f"{', '.join(OPERATIONS)} or {', '.join(INFERENCES)}"
    raise BadInput(f"the model's labels are {names}; a classifier needs {allowed}")


def _most_probable(row: Sequence[float]) -> OperationLabel:
    probabilities = dict(zip(OPERATIONS, row, strict=True))
    return OperationLabel(max(OPERATIONS, key=lambda name: probabilities[name]), probabilities)
