"""The paper's table from inference to operations, and what becomes of doubt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.classification import Operation
from localmem.classification.trained_classifier import INFERENCES, Inference, Verdict, operation_from_inference


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
