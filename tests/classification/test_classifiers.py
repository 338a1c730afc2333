"""Classifiers of sentence pairs: the backbone, trained models, and natural language inference."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localmem.classification import OPERATIONS, LLMClassifier, Operation, OperationLabel
from localmem.classification.pair_classifier import (
    INFERENCES,
    Inference,
    PairModel,
    TrainedClassifier,
    Verdict,
    ZeroShotClassifier,
    classifier_of,
    labels_of,
    operation_from_inference,
)
from localmem.errors import BadInput, PartialFailure
from localmem.factory import pair_classifier
from localmem.llm.scripted import ScriptedLLM
from localmem.types import Choice, Completion, Prompt
from tests.fakes import BatchRecorder, obedient
from tests.finetune.small import small_encoder


def _operation(prompt: Prompt) -> str:
    question = prompt.messages[-1].content
    return next(name for word, name in _SAID.items() if word in question)


_SAID = {"swims": "PASS", "flat": "REPLACE", "parrot": "APPEND", "ankle": "DELETE"}
_PAIRS = [("Bo swims daily.", "Bo swims."), ("Bo seeks a flat.", "Bo has a flat."), ("Bo's ankle hurts.", "It healed.")]


def test_all_pairs_go_out_in_one_call_with_one_prefix_and_come_back_in_order() -> None:
    llm = BatchRecorder(_operation)
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


class Told(PairModel):
    """A model whose rows are given; keeps what it was asked."""

    def __init__(self, labels: Sequence[str], rows: dict[tuple[str, str], list[float]]) -> None:
        super().__init__(Path("nowhere"))
        self._labels = tuple(labels)
        self._rows = rows
        self.asked: list[list[tuple[str, str]]] = []

    @property
    def labels(self) -> tuple[str, ...]:
        return self._labels

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.asked.append(list(pairs))
        return np.array([self._rows[pair] for pair in pairs], dtype=np.float32)


def test_columns_are_read_by_name_not_by_place() -> None:
    model = Told(["DELETE", "REPLACE", "PASS", "APPEND"], {("m", "s"): [0.1, 0.2, 0.3, 0.4], ("n", "t"): [1, 0, 0, 0]})
    first, second = TrainedClassifier(model).classify([("m", "s"), ("n", "t")])
    assert (first.operation, second.operation) == ("APPEND", "DELETE")
    assert first.probabilities == pytest.approx({"PASS": 0.3, "APPEND": 0.4, "REPLACE": 0.2, "DELETE": 0.1})
    assert len(model.asked) == 1


def test_inference_is_asked_both_ways_in_one_batch() -> None:
    labels = ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"]  # as roberta-large-mnli has them
    rows = {
        ("old", "same"): [0.0, 0.0, 1.0],
        ("same", "old"): [0.0, 0.0, 1.0],
        ("old", "more"): [0.0, 1.0, 0.0],
        ("more", "old"): [0.0, 0.0, 1.0],
        ("old", "other"): [0.0, 1.0, 0.0],
        ("other", "old"): [0.0, 1.0, 0.0],
    }
    model = Told(labels, {pair: [float(value) for value in row] for pair, row in rows.items()})
    results = ZeroShotClassifier(model).classify([("old", "same"), ("old", "more"), ("old", "other")])
    assert [label.operation for label in results] == ["PASS", "REPLACE", "APPEND"]
    assert len(model.asked) == 1


def test_no_pairs_run_no_model() -> None:
    model = Told(OPERATIONS, {})
    assert TrainedClassifier(model).classify([]) == ZeroShotClassifier(model).classify([]) == []
    assert model.asked == []


def test_labels_say_what_a_model_is_for() -> None:
    model = Told(OPERATIONS, {})
    assert isinstance(classifier_of(OPERATIONS, model), TrainedClassifier)
    assert isinstance(classifier_of(["contradiction", "entailment", "neutral"], model), ZeroShotClassifier)
    with pytest.raises(BadInput, match="labels are inside, boundary"):
        classifier_of(["inside", "boundary"], model)
    assert labels_of({"id2label": {"1": "b", "0": "a", "10": "k", "2": "c"}}) == ("a", "b", "c", "k")
    assert labels_of({"model_type": "mt5", "localmem": {"labels": ["x", "y"]}, "id2label": {"0": "a"}}) == ("x", "y")
    assert labels_of({"model_type": "t5", "id2label": {"0": "LABEL_0"}}) == ()


def test_a_folder_of_another_kind_is_no_classifier(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="labels are none"):
        pair_classifier(str(small_encoder(tmp_path, ["a"])), "cpu")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(BadInput, match="damaged"):
        pair_classifier(str(tmp_path / "broken"), "cpu")


def _sure(inference: Inference) -> Verdict:
    return {name: float(name == inference) for name in INFERENCES}


@pytest.mark.parametrize(
    "forward, backward, expected",
    [
        ("entailment", "entailment", "PASS"),
        ("entailment", "neutral", "PASS"),
        ("entailment", "contradiction", "PASS"),
        ("neutral", "entailment", "REPLACE"),  # the summary says the same and more
        ("neutral", "neutral", "APPEND"),
        ("neutral", "contradiction", "APPEND"),
        ("contradiction", "entailment", "REPLACE"),
        ("contradiction", "neutral", "REPLACE"),
        ("contradiction", "contradiction", "REPLACE"),
    ],
)
def test_sure_verdicts_give_the_table(forward: Inference, backward: Inference, expected: Operation) -> None:
    label = operation_from_inference(_sure(forward), _sure(backward))
    assert label.operation == expected
    assert label.probabilities == {name: float(name == expected) for name in label.probabilities}


def test_doubtful_verdicts_are_weighed() -> None:
    forward: Verdict = {"entailment": 0.4, "neutral": 0.4, "contradiction": 0.2}
    likely: Verdict = {"entailment": 0.75, "neutral": 0.25, "contradiction": 0.0}
    label = operation_from_inference(forward, likely)
    assert label.operation == "REPLACE"  # 0.2 by contradiction and 0.3 by reverse entailment
    assert label.probabilities == pytest.approx({"PASS": 0.4, "APPEND": 0.1, "REPLACE": 0.5, "DELETE": 0.0})
    assert operation_from_inference(forward, _sure("contradiction")).operation == "PASS"  # of equals the first


verdicts = st.lists(st.floats(0.01, 1), min_size=3, max_size=3).map(
    lambda weights: {name: weight / sum(weights) for name, weight in zip(INFERENCES, weights, strict=True)}
)


@given(verdicts, verdicts)
def test_probabilities_sum_to_one_and_nothing_is_deleted(forward: Verdict, backward: Verdict) -> None:
    label = operation_from_inference(forward, backward)
    assert sum(label.probabilities.values()) == pytest.approx(1)
    assert label.probabilities["DELETE"] == 0
    assert label.probabilities[label.operation] == max(label.probabilities.values())
