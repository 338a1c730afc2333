"""Trained classifiers: the columns of a model become operations; inference is asked both ways in one batch."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem.classification import OPERATIONS
from localmem.classification.pair_classifier import PairModel, labels_of
from localmem.classification.trained_classifier import TrainedClassifier, ZeroShotClassifier, classifier_of
from localmem.errors import BadInput
from localmem.factory import pair_classifier
from tests.finetune.small import small_encoder


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


def test_no_pairs_ask_nothing() -> None:
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
