"""Bootstrap intervals: how far a mean over questions may be off. Knows numbers only.

Percentile intervals over resampled questions (Efron and Tibshirani, 1993, chapter 13). Questions of one conversation
are drawn as if they were independent, which makes the intervals somewhat narrow.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localmem.errors import BadInput

_BLOCK = 256  # resamples drawn at once


class Estimate(NamedTuple):
    """A mean and its 95% confidence interval."""

    mean: float
    low: float
    high: float


def estimate(values: Sequence[float], *, seed: int = 0, resamples: int = 2000) -> Estimate:
    """The mean of the values (one at least) with its interval; the same seed gives the same interval."""
    if not values:
        raise BadInput("there is nothing to take the mean of; give at least one value")
    held = np.asarray(values, dtype=np.float64)
    low, high = np.quantile(_means(held, seed, resamples), [0.025, 0.975])
    return Estimate(float(held.mean()), float(low), float(high))


def difference(ours: Sequence[float], theirs: Sequence[float], *, seed: int = 0, resamples: int = 2000) -> Estimate:
    """The mean of `ours` minus that of `theirs`, question by question: both lists are of the same questions."""
    if len(ours) != len(theirs):
        raise BadInput(f"{len(ours)} and {len(theirs)} values cannot be paired; give two runs over the same questions")
    return estimate([a - b for a, b in zip(ours, theirs, strict=True)], seed=seed, resamples=resamples)


def _means(held: NDArray[np.float64], seed: int, resamples: int) -> NDArray[np.float64]:
    draw = np.random.default_rng(seed)
    means: list[NDArray[np.float64]] = []
    for start in range(0, resamples, _BLOCK):
        picks = draw.integers(len(held), size=(min(_BLOCK, resamples - start), len(held)))
        means.append(held[picks].mean(axis=1))
    return np.concatenate(means)
