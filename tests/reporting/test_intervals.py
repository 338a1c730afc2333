"""Intervals of means, shares and differences: against theory, against simulated truth, and at the edges."""

from math import sqrt

import numpy as np
import pytest

from localmem.errors import BadInput
from localmem.reporting.intervals import Estimate, difference, estimate

LOCOMO = [199, 105, 193, 260, 242, 158, 190, 239, 196, 204]  # questions of its ten conversations


def test_the_interval_of_many_values_matches_the_normal_distribution() -> None:
    values = np.random.default_rng(5).normal(10, 2, size=1000)
    interval = estimate(list(values))
    error = values.std() / np.sqrt(len(values))
    assert interval == pytest.approx((values.mean(), values.mean() - 1.96 * error, values.mean() + 1.96 * error), 1e-3)


@pytest.mark.parametrize("right", [0, 3, 6])
def test_a_share_has_the_interval_of_wilson_with_students_quantile(right: int) -> None:
    mean, low, high = estimate([1.0] * right + [0.0] * (6 - right))
    quantile = 2.5706  # Student's t, five degrees of freedom
    for bound in (low, high):  # Wilson: the shares from which this one is exactly `quantile` errors away
        assert bound is not None
        assert abs(mean - bound) == pytest.approx(quantile * sqrt(bound * (1 - bound) / 6), rel=0.1)
    assert high is not None
    assert low is not None
    assert 0 <= low < high <= 1


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("correlation", [0.005, 0.02, 0.05])
def test_nominal_95_percent_hold_the_truth_on_the_shape_of_locomo(share: float, correlation: float) -> None:
    random = np.random.default_rng(7)
    scale = (1 - correlation) / correlation
    clusters = [number for number, size in enumerate(LOCOMO) for _ in range(size)]
    held_by = {"clusters": 0, "questions": 0}
    for _ in range(300):
        shares = random.beta(share * scale, (1 - share) * scale, len(LOCOMO))
        values = [float(value) for value in random.random(len(clusters)) < shares[clusters]]
        for name, estimated in (("clusters", estimate(values, clusters)), ("questions", estimate(values))):
            assert estimated.low is not None
            assert estimated.high is not None
            held_by[name] += estimated.low <= share <= estimated.high
    assert held_by["clusters"] >= 0.9 * 300
    assert held_by["questions"] < held_by["clusters"]


def test_clusters_that_agree_within_widen_the_interval() -> None:
    values = [float(person % 2) for person in range(10) for _ in range(20)]
    people = [person for person in range(10) for _ in range(20)]
    apart, together = estimate(values), estimate(values, people)
    assert together.mean == apart.mean == 0.5
    assert None not in (together.low, together.high, apart.low, apart.high)
    assert (together.high or 0) - (together.low or 0) > 3 * ((apart.high or 0) - (apart.low or 0))
    assert tuple(estimate(values, ["ann"] * 200)) == (0.5, None, None)  # one person tells nothing of others
    assert estimate(values, range(200)) == apart


def test_shares_stay_shares_and_differences_do_not() -> None:
    near_one = [1.0] * 9 + [0.5]
    assert estimate(near_one).high == 1.0
    assert (difference(near_one, [0.0] * 10).high or 0) > 1.0


@pytest.mark.parametrize("sides", [([1.0] * 3 + [0.2] * 5, [0.0] * 3 + [0.2] * 5), ([1.0] * 3 + [0.0] * 2, [0.0] * 5)])
def test_a_difference_is_the_mirror_of_the_other_way_round(sides: tuple[list[float], list[float]]) -> None:
    one, other = difference(*sides), difference(*reversed(sides))
    assert one.low is not None
    assert one.high is not None
    assert (one.mean, one.low, one.high) == pytest.approx((-other.mean, -(other.high or 0), -(other.low or 0)))


def test_fewer_than_five_values_have_no_interval() -> None:
    few = estimate([1.0, 0.0, 1.0, 1.0])
    assert tuple(few) == (0.75, None, None)
    assert few.as_text() == "0.750"
    assert not few.spans_zero
    assert Estimate.of(few.as_dict()) == few


def test_pairing_removes_what_both_runs_share() -> None:
    theirs = list(np.random.default_rng(1).uniform(size=60))
    ours = [value + 0.05 for value in theirs]
    assert difference(ours, theirs) == pytest.approx((0.05, 0.05, 0.05))
    assert difference(ours, theirs).as_text("+") == "+0.050 [+0.050, +0.050]"


def test_no_difference_between_six_shares_is_not_certain() -> None:
    mean, low, high = difference([1.0] * 6, [1.0] * 6)
    assert mean == 0
    assert low is not None
    assert high is not None
    assert low < -0.2
    assert high > 0.2


def test_missing_or_unpaired_values_are_refused() -> None:
    with pytest.raises(BadInput, match="mean of no values"):
        estimate([])
    with pytest.raises(BadInput, match="2 and 1 values"):
        difference([1.0, 2.0], [1.0])
    with pytest.raises(BadInput, match="compare no values"):
        difference([], [])
