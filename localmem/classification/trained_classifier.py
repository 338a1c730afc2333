"""Trained classifiers of sentence pairs: operations in one pass of a small model.

One kind of model learned the four operations, the other natural language inference, read with the paper's zero-shot
mapping (Keep Me Updated, section 5.1.1): "PASS": entailment, "REPLACE": contradiction or reversely entailment,
"APPEND": neutral; DELETE is not mapped.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from localmem.classification import OPERATIONS, Operation, OperationLabel, PairClassifier
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


Inference = Literal["entailment", "neutral", "contradiction"]
INFERENCES: tuple[Inference, ...] = ("entailment", "neutral", "contradiction")  # the digits 0 to 2 (appendix B.4)

Verdict = Mapping[Inference, float]  # the probability of each; they sum to 1


def operation_from_inference(forward: Verdict, backward: Verdict) -> OperationLabel:
    """The operation on (memory, summary): `forward` has the memory as premise, `backward` the summary.

    Reverse entailment counts only where the forward verdict is neutral, so two sentences that entail each other are a
    PASS. The paper names the cases but not how to weight them; here the two verdicts are multiplied as if independent,
    and the most probable operation wins (of equals the first in OPERATIONS). Certain verdicts give the paper's table.
    """
    reverse = backward["entailment"]
    probabilities: dict[Operation, float] = {
        "PASS": forward["entailment"],
        "APPEND": forward["neutral"] * (1 - reverse),
        "REPLACE": forward["contradiction"] + forward["neutral"] * reverse,
        "DELETE": 0.0,
    }
    return OperationLabel(max(OPERATIONS, key=lambda name: probabilities[name]), probabilities)
