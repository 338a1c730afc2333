"""Bootstrap intervals: against theory where there is one, and paired differences."""

import numpy as np
import pytest

from localmem.errors import BadInput
from localmem.reporting.bootstrap import difference, estimate


def test_an_interval_is_that_of_the_normal_distribution_for_many_values() -> None:
    values = np.random.default_rng(5).normal(10, 2, size=1000)
    found = estimate(list(values), resamples=4000)
    error = values.std() / np.sqrt(len(values))
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - 1.96 * error, abs=error / 5)
    assert found.high == pytest.approx(values.mean() + 1.96 * error, abs=error / 5)


def test_one_seed_one_interval() -> None:
    values = [0.0, 1.0, 1.0, 0.5] * 20
    assert estimate(values, seed=3) == estimate(values, seed=3)
    assert estimate(values, seed=3) != estimate(values, seed=4)
    assert estimate([0.25] * 8) == (0.25, 0.25, 0.25)


def test_pairing_takes_out_what_both_runs_share() -> None:
    theirs = list(np.random.default_rng(1).uniform(size=60))
    ours = [value + 0.05 for value in theirs]
    found = difference(ours, theirs)
    assert found == pytest.approx((0.05, 0.05, 0.05))
    assert estimate(ours).low < estimate(theirs).high  # alone, the two could not be told apart


def test_what_cannot_be_estimated() -> None:
    with pytest.raises(BadInput, match="nothing to take the mean of"):
        estimate([])
    with pytest.raises(BadInput, match="2 and 1 values"):
        difference([1.0, 2.0], [1.0])
