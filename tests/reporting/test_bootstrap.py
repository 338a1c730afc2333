"""Bootstrap intervals of ratios, resampled by cluster."""

import random

import numpy as np
import pytest

from localmem.reporting.bootstrap import (
    SortedSample,
    cluster_mean,
    cluster_percentile,
    cluster_ratio,
)


def test_a_weighted_percentile_is_that_of_numpy() -> None:
    values, clusters = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([0, 0, 1, 2, 1])
    counts = np.array([[1, 1, 1], [2, 0, 1], [0, 3, 0]])
    for percent in (0, 5, 50, 90, 95, 100):
        expected = [np.percentile(np.repeat(values, row[clusters]), percent) for row in counts]
        computed = cluster_percentile(percent)(SortedSample(values, clusters), counts)
        assert computed.tolist() == pytest.approx(expected)


def test_a_statistic_of_nothing_is_nan() -> None:
    sample, counts = SortedSample(np.array([1.0]), np.array([0])), np.array([[0, 2], [1, 1]])
    for statistic in (cluster_mean, cluster_percentile(50)):
        first, second = statistic(sample, counts)
        assert np.isnan(first)
        assert second == 1


def test_the_ratio_of_proportional_runs_has_no_spread() -> None:
    draw = random.Random(0)
    ours = [(f"s{number // 5}", draw.uniform(10, 100)) for number in range(200)]
    ratio = cluster_ratio(ours, [(name, 1.2 * value) for name, value in ours], cluster_percentile(95))
    assert (ratio.ratio, ratio.low, ratio.high) == pytest.approx((1.2, 1.2, 1.2)), "shared clusters cancel out"


def test_runs_of_different_clusters_may_differ_by_chance() -> None:
    draw = random.Random(0)
    ours, theirs = ([(f"{run}{number // 5}", draw.uniform(10, 100)) for number in range(200)] for run in "ab")
    ratio = cluster_ratio(ours, theirs, cluster_percentile(50))
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low < 1 < ratio.high
    assert ratio == cluster_ratio(ours, theirs, cluster_percentile(50)), "the same seed gives the same interval"


def test_values_of_one_cluster_are_resampled_together() -> None:
    """Repeating every value within its cluster adds no information, so the interval stays as wide."""
    single = [(name, value) for name, value in zip("abcd", (10.0, 20.0, 30.0, 40.0), strict=True)]
    constant = [("x", 10.0), ("y", 10.0)]
    repeated = cluster_ratio(constant, single * 25, cluster_mean)
    assert repeated[1:] == pytest.approx(cluster_ratio(constant, single, cluster_mean)[1:])


def test_a_single_cluster_has_no_interval() -> None:
    assert cluster_ratio([("a", 2.0), ("a", 4.0)], [("b", 6.0)], cluster_mean) == (2.0, None, None)


def test_blocks_do_not_change_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [(str(number), 1.0 + number) for number in range(30)]
    expected = cluster_ratio(values, values[::2], cluster_mean, resamples=50)
    monkeypatch.setattr("localmem.reporting.bootstrap._CLUSTER_BLOCK", 100)
    assert cluster_ratio(values, values[::2], cluster_mean, resamples=50) == expected
