"""Sentences about different matters are both kept, without asking."""

from collections.abc import Sequence

from localmem.classification import OperationLabel
from localmem.classification.related_pairs import RelatedPairClassifier
from tests.fakes import WordEncoder


class Replacing:
    """Says REPLACE to everything."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        self.pairs += pairs
        return [OperationLabel("REPLACE", {"REPLACE": 1.0})] * len(pairs)


def test_only_pairs_about_one_matter_are_asked_about() -> None:
    inner = Replacing()
    near, far = ("lives in Leeds", "lives in York"), ("lives in Leeds", "plays chess")
    labels = RelatedPairClassifier(inner, WordEncoder()).classify([far, near, far])
    assert [label.operation for label in labels] == ["APPEND", "REPLACE", "APPEND"]
    assert inner.pairs == [near]
    assert RelatedPairClassifier(inner, WordEncoder()).classify([]) == []
