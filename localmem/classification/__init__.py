"""Classifiers of sentence pairs: what a new sentence does to a remembered one (Keep Me Updated, section 4.3).

The contract and the backbone as a classifier; no weights library is imported. Trained models: `pair_classifier`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from localmem.llm.base import LLM
from localmem.prompts import render
from localmem.types import Choice, Completion

Operation = Literal["PASS", "APPEND", "REPLACE", "DELETE"]
_PROMPT = "carecall/operation"
OPERATIONS: tuple[Operation, ...] = ("PASS", "APPEND", "REPLACE", "DELETE")  # the digits 0 to 3 (section 4)


class OperationLabel(NamedTuple):
    """The most probable operation of one pair, and the probability of each (they sum to 1)."""

    operation: Operation
    probabilities: Mapping[Operation, float]


class PairClassifier(Protocol):
    """Decides what a new sentence does to a remembered one. List in, list out, same order."""

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        """The operation for each (memory, sentence). All pairs go out as one batch."""


class LLMClassifier:
    """A PairClassifier that asks the prompt carecall/operation for the name of one operation.

    The names differ in their first letter, so the backend's probabilities are exact. All prompts share their
    instructions and go out in one call.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._form = Choice(OPERATIONS)

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        """The operation for each (memory, sentence), and the probability of each of the four."""
        if not pairs:
            return []
        prompts = [render(_PROMPT, form=self._form, memory=memory, sentence=sentence) for memory, sentence in pairs]
        return [_label(completion) for completion in self._llm.generate(prompts)]


def _label(completion: Completion) -> OperationLabel:
    """The decoded operation; it has probability 1 when the backend reports none."""
    (operation,) = (name for name in OPERATIONS if name == completion.text)
    log_probabilities = completion.choices or {operation: 0.0}
    return OperationLabel(operation, {name: math.exp(log_probabilities.get(name, -math.inf)) for name in OPERATIONS})
