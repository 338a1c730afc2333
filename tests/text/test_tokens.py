"""Token budgets."""

from collections.abc import Sequence

import pytest

from localmem.text.tokens import within


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


@pytest.mark.parametrize(
    ("budget", "fitting"), [(-1, 0), (0, 0), (1, 0), (2, 1), (4, 1), (5, 3), (8, 3), (9, 4), (1000, 4)]
)
def test_the_first_texts_that_fit(budget: int, fitting: int) -> None:
    assert within(["a b", "c d e", "", "f g h i"], budget, words) == fitting


def test_no_texts_fit_any_budget() -> None:
    assert within([], 0, words) == 0
