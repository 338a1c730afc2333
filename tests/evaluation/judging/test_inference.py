"""The entailment judge by a trained NLI model."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem.errors import BadInput
from localmem.evaluation.judging.inference import infer_verdicts

ROWS = {"same": (0.9, 0.05, 0.05), "against": (0.05, 0.9, 0.05), "other": (0.1, 0.1, 0.8)}


class Words:
    """Says entailment where both sentences share the word "Porto", contradiction where one has "Faro" instead."""

    labels: Sequence[str] = ("ENTAILMENT", "contradiction", "Neutral")

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        self.pairs += pairs
        return np.array([ROWS[self._kind(*pair)] for pair in pairs], dtype=np.float32).reshape(-1, 3)

    def _kind(self, premise: str, hypothesis: str) -> str:
        if "Porto" not in premise:
            return "other"
        return "same" if "Porto" in hypothesis else "against" if "Faro" in hypothesis else "other"


PAST = "Ana lives in Porto. Ana sings."


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("You live in Porto.", "entail"),
        ("How is Faro?", "contradict"),
        ("Good evening!", "neutral"),
        ("Porto is lovely. But you live in Faro.", "contradict"),
        ("Good evening! Porto is lovely.", "entail"),
    ],
)
def test_the_sentences_together_decide(answer: str, label: str) -> None:
    (verdict,) = infer_verdicts(Words(), [{"past": PAST, "answer": answer}])
    assert verdict.label == label
    assert verdict.scores[label] == 1.0
    assert sum(verdict.probabilities.values()) == pytest.approx(1.0)


def test_all_items_go_to_the_model_together_and_come_back_in_order() -> None:
    model = Words()
    items = [{"past": PAST, "answer": text} for text in ("Faro.", "", "Hello. Porto.")]
    assert [verdict.label for verdict in infer_verdicts(model, items)] == ["contradict", "neutral", "entail"]
    assert len(model.pairs) == 2 + 0 + 4


def test_nothing_known_is_neutral() -> None:
    (verdict,) = infer_verdicts(Words(), [{"past": "", "answer": "Porto."}])
    assert verdict.label == "neutral"


def test_a_model_of_something_else_is_refused() -> None:
    model = Words()
    model.labels = ("PASS", "REPLACE", "APPEND", "DELETE")
    with pytest.raises(BadInput, match="an NLI model has entailment"):
        infer_verdicts(model, [{"past": PAST, "answer": "Porto."}])
    with pytest.raises(BadInput, match="add past"):
        infer_verdicts(Words(), [{"answer": "Porto."}])
