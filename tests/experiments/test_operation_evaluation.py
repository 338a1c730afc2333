"""Classifiers of operations, compared on pairs of which one word tells the label."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from localmem.classification import OPERATIONS, OperationLabel
from localmem.config import load_settings
from localmem.errors import BadInput
from localmem.evaluation.datasets.labelled_pairs import read_operations
from localmem.experiments.operation_evaluation import (
    OperationsRecipe,
    SessionEnd,
    classify_pairs,
    compare_classifiers,
    large_session_ends,
    score_operations,
    session_ends,
)
from tests.fakes import WordEncoder
from tests.finetune.play import WORDS, operation_file


class WordClassifier:
    """Right about every sentence but those with `blind`, which it calls an APPEND."""

    def __init__(self, blind: str = "") -> None:
        self._labels = {word: name for name in OPERATIONS if (word := WORDS[name]) != blind}

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        return [OperationLabel(self._labels.get(second.split()[1], "APPEND"), {}) for _, second in pairs]


def test_scores_of_a_classifier_that_misses_one_operation(tmp_path: Path) -> None:
    pairs = read_operations(operation_file(tmp_path)).pairs
    labels, speed = classify_pairs(WordClassifier(blind="over"), pairs)
    scores = score_operations(pairs, labels)
    assert speed > 0
    assert scores.accuracy == 0.75
    assert scores.f1 == {"PASS": 1, "APPEND": pytest.approx(2 / 3), "REPLACE": 1, "DELETE": 0}
    assert scores.confusion[3] == [0, 48, 0, 0]
    assert scores.set_f1 == pytest.approx(0.75), "after a missed DELETE both sentences remain instead of none"


def test_the_memory_after_a_session_decides_set_f1(tmp_path: Path) -> None:
    (end, *_) = session_ends(read_operations(operation_file(tmp_path)).pairs)
    assert len(end.memory) == len(end.new) == 1
    assert end.f1(end.gold) == 1
    two = SessionEnd(("a", "b"), ("c",), {("a", "c"): "REPLACE"})
    assert two.f1({}) == pytest.approx(4 / 5), "a, b and c against b and c"


def test_large_session_ends_mix_groups(tmp_path: Path) -> None:
    pairs = read_operations(operation_file(tmp_path)).pairs
    ends = large_session_ends(pairs, 10, 3, seed=1)
    assert ends == large_session_ends(pairs, 10, 3, seed=1)
    assert {(len(end.memory), len(end.new)) for end in ends} == {(10, 3)}
    with pytest.raises(BadInput, match="fewer than 500 remembered sentences"):
        large_session_ends(pairs, 500, 3, seed=1)


def test_the_report_times_session_ends_with_and_without_a_shortlist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localmem.factory.pair_classifier", lambda name, _: WordClassifier(name))
    monkeypatch.setattr("localmem.factory.bare_encoder", lambda _, **_options: WordEncoder())
    recipe = OperationsRecipe(classifiers=("", "over"), memories=12, new=2, shortlist=4, sessions=2)
    report = compare_classifiers(load_settings(None, {}), recipe, operation_file(tmp_path), out=tmp_path / "out")
    right, blind = report.figures["models"]
    assert (right["accuracy"], blind["accuracy"]) == (1.0, 0.75)
    costs = right["session_end"]
    assert (costs["pairs"], costs["shortlisted_pairs"]) == (24, 8)
    assert costs["shortlist_loss_points"] == pytest.approx(100 * (costs["set_f1"] - costs["shortlist_set_f1"]))
    captions = [table.caption for table in report.tables]
    assert captions[1] == "Session end"
    assert captions[-1] == "over: confusion (rows are the true labels)"
    assert (tmp_path / "out" / "report.json").exists()
