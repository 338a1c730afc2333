"""Measures of two segmentations: those of nltk where it has them, and SuperDialSeg's protocol around them."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localmem.evaluation.datasets.segmented_dialogues import (
    Agreement,
    agreement,
    f1,
    mean_agreement,
    p_k,
    window_diff,
    window_size,
)
from localmem.segmentation.segmenters import segments_between

Measure = Callable[[Sequence[range], Sequence[range], int], float]


@pytest.mark.parametrize("ours, theirs", [(window_diff, "windowdiff"), (p_k, "pk")])
@settings(deadline=None)  # the first call loads nltk
@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)), st.sets(st.integers(0, n - 1)))
    ),
    st.integers(2, 6),
)
def test_the_errors_are_those_of_nltk(
    ours: Measure, theirs: str, case: tuple[int, set[int], set[int]], size: int
) -> None:
    from nltk.metrics import segmentation

    count, right, predicted = case
    marks = [
        "".join("1" if number + 1 in starts and number + 1 < count else "0" for number in range(count))
        for starts in (right, predicted)
    ]
    expected = getattr(segmentation, theirs)(*marks, k=min(size, count))
    assert ours(segments_between(right, count), segments_between(predicted, count), size) == pytest.approx(expected)


def test_the_window_is_half_the_mean_segment() -> None:
    assert window_size([range(2), range(2, 5)]) == 2
    assert window_size([range(12), range(12, 24)]) == 6
    assert window_diff([range(12), range(12, 24)], [range(12), range(12, 24)]) == 0.0
    assert window_diff([], []) == 0.0


def test_boundaries_are_right_where_they_stand() -> None:
    right = [range(2), range(2, 4), range(4, 9)]
    assert f1(right, right) == 1.0
    assert f1(right, [range(2), range(2, 9)]) == pytest.approx(2 / 3)
    assert f1(right, [range(3), range(3, 9)]) == 0.0
    assert f1([range(4)], [range(4)]) == 0.0, "no boundary to find, none found: SuperDialSeg's zero_division=0"


def test_the_score_weighs_f1_as_much_as_both_errors() -> None:
    assert Agreement(0.5, 0.2, 0.4).score == pytest.approx(0.6)
    right = [range(5), range(5, 10)]
    assert agreement(right, right) == Agreement(1.0, 0.0, 0.0)
    assert mean_agreement([Agreement(1.0, 0.0, 0.0), Agreement(0.0, 1.0, 0.5)]) == Agreement(0.5, 0.5, 0.25)
    assert mean_agreement([]).score == 0.0
