"""Classifiers of sentence pairs: what a new sentence does to a remembered one.

Knows no bank and no system. Here the backbone itself decides, as a constrained choice.
"""

import math
from collections.abc import Sequence

from localmem.llm.base import LLM
from localmem.prompts import render
from localmem.text.base import OPERATIONS, Labelled
from localmem.types import Choice, Completion


class LLMClassifier:
    """A PairClassifier that asks `prompt` (inputs memory, sentence) for one of the four operations' names.

    The names part at their first letter, so the probabilities are exact as far as the backend tells them. All prompts
    share their instructions and go out in one call.
    """

    def __init__(self, llm: LLM, *, prompt: str = "carecall/operation") -> None:
        self._llm = llm
        self._prompt = prompt
        self._form = Choice(OPERATIONS)

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[Labelled]:
        """For each (memory, sentence) the operation, and how probable each of the four is."""
        if not pairs:
            return []
        asked = [render(self._prompt, form=self._form, memory=memory, sentence=sentence) for memory, sentence in pairs]
        return [_labelled(completion) for completion in self._llm.generate(asked)]


def _labelled(completion: Completion) -> Labelled:
    """The operation that was decoded; all of the probability is its own where the backend gave none."""
    (operation,) = (name for name in OPERATIONS if name == completion.text)
    given = completion.choices or {operation: 0.0}
    return Labelled(operation, {name: math.exp(given.get(name, -math.inf)) for name in OPERATIONS})
