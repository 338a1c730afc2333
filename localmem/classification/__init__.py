"""Classifiers of sentence pairs: what a new sentence does to a remembered one (Keep Me Updated, section 4.3).

The contract stands here and imports no weights library; the backbone (`llm_classifier`) or a trained model
(`trained_classifier`) fulfils it.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

Operation = Literal["PASS", "APPEND", "REPLACE", "DELETE"]
OPERATIONS: tuple[Operation, ...] = ("PASS", "APPEND", "REPLACE", "DELETE")  # the digits 0 to 3 (section 4)


class OperationLabel(NamedTuple):
    """The most probable operation of one pair, and the probability of each (they sum to 1)."""

    operation: Operation
    probabilities: Mapping[Operation, float]


class PairClassifier(Protocol):
    """Decides what a new sentence does to a remembered one. List in, list out, same order."""

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        """The operation for each (memory, sentence). All pairs go out as one batch."""
        ...
