"""The backbone as pair classifier: one choice a pair, all pairs at once, probabilities from the choice."""

import math
from collections.abc import Sequence

import pytest

from localmem.classification import OPERATIONS, LLMClassifier, OperationLabel
from localmem.errors import PartialFailure
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Choice, Completion, Prompt
from tests.fakes import obedient


class Counting(ScriptedLLM):
    """Keeps the batches it was asked."""

    batches: list[list[Prompt]]

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.batches = [*getattr(self, "batches", []), list(prompts)]
        return super().generate(prompts)


def _operation(prompt: Prompt) -> str:
    question = prompt.messages[-1].content
    return next(name for word, name in _SAID.items() if word in question)


_SAID = {"swims": "PASS", "flat": "REPLACE", "parrot": "APPEND", "ankle": "DELETE"}
_PAIRS = [("Bo swims daily.", "Bo swims."), ("Bo seeks a flat.", "Bo has a flat."), ("Bo's ankle hurts.", "It healed.")]


def test_all_pairs_go_out_in_one_call_with_one_prefix_and_come_back_in_order() -> None:
    llm = Counting(_operation)
    labels = LLMClassifier(llm).classify([*_PAIRS, ("Bo has a parrot.", "그 앵무새는 노래해요. 🦜")])
    assert [label.operation for label in labels] == ["PASS", "REPLACE", "DELETE", "APPEND"]
    (batch,) = llm.batches
    assert len({prompt.messages[0] for prompt in batch}) == 1
    assert {prompt.format for prompt in batch} == {Choice(OPERATIONS)}
    assert "그 앵무새는 노래해요. 🦜" in batch[-1].messages[-1].content


def test_probabilities_are_the_choices() -> None:
    class Weighing(ScriptedLLM):
        def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
            weights = {"PASS": 0.1, "APPEND": 0.2, "REPLACE": 0.6, "DELETE": 0.1}
            choices = {name: math.log(weight) for name, weight in weights.items()}
            return [Completion("REPLACE", choices=choices) for _ in prompts]

    (label,) = LLMClassifier(Weighing(obedient)).classify(_PAIRS[:1])
    assert label.operation == "REPLACE"
    assert label.probabilities["REPLACE"] == pytest.approx(0.6)
    assert sum(label.probabilities.values()) == pytest.approx(1)


def test_a_backend_without_probabilities_is_certain() -> None:
    class Silent(ScriptedLLM):
        def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
            return [Completion("DELETE") for _ in prompts]

    (label,) = LLMClassifier(Silent(obedient)).classify(_PAIRS[:1])
    assert label == OperationLabel("DELETE", {"PASS": 0.0, "APPEND": 0.0, "REPLACE": 0.0, "DELETE": 1.0})


def test_a_pair_that_fails_fails_the_batch() -> None:
    llm = ScriptedLLM(lambda prompt: "MAYBE" if "flat" in prompt.messages[-1].content else "PASS")
    with pytest.raises(PartialFailure):
        LLMClassifier(llm).classify(_PAIRS)


def test_no_pairs_ask_nothing() -> None:
    assert LLMClassifier(ScriptedLLM(lambda _: pytest.fail("nothing is to be asked"))).classify([]) == []
