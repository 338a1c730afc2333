"""Percentile bootstrap intervals (Efron and Tibshirani, 1993, chapter 13) of one sample and of ratios of two.

Pure functions of numbers. Whole clusters are resampled (hierarchical data: Davison and Hinkley, 1997, section 3.8),
because requests of one conversation depend on one another. A cluster that is in both samples is drawn for both at once,
so that its length cancels out of the ratio. Means and differences are in `intervals`.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Clustered = Sequence[tuple[Hashable, float]]  # the cluster and the value of each observation

_RESAMPLES = 2000
_CLUSTER_BLOCK = 2_000_000  # weights in memory at once


class Ratio(NamedTuple):
    """A ratio and its 95 % interval; no interval where either sample has fewer than two clusters."""

    ratio: float
    low: float | None
    high: float | None


class SortedSample(NamedTuple):
    """Values in ascending order, and the number of the cluster that each belongs to."""

    values: Floats
    clusters: Counts


# A statistic of a sample for each row of counts, shape (resamples, clusters): how often each cluster was drawn.
Statistic = Callable[[SortedSample, Counts], Floats]


def cluster_ratio(
    ours: Clustered, theirs: Clustered, statistic: Statistic, *, seed: int = 0, resamples: int = _RESAMPLES
) -> Ratio:
    """The statistic of `theirs` divided by that of `ours`; both samples must hold values above zero."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in (*ours, *theirs)))}
    samples = [_sort(side, numbers) for side in (ours, theirs)]
    once = np.ones((1, len(numbers)), dtype=np.int64)
    first, second = (float(statistic(sample, once)[0]) for sample in samples)
    if min(len(set(sample.clusters.tolist())) for sample in samples) < 2:
        return Ratio(second / first, None, None)
    ratios = [
        statistic(samples[1], counts) / statistic(samples[0], counts)
        for counts in _cluster_counts(samples, len(numbers), seed, resamples)
    ]
    low, high = np.nanquantile(np.concatenate(ratios), [0.025, 0.975])
    return Ratio(second / first, float(low), float(high))


def cluster_interval(values: Clustered, statistic: Statistic) -> tuple[float, float] | None:
    """The 95 % interval of a statistic of one sample; None with fewer than two clusters."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in values))}
    if len(numbers) < 2:
        return None
    sample = _sort(values, numbers)
    draws = [statistic(sample, counts) for counts in _cluster_counts([sample], len(numbers), 0, _RESAMPLES)]
    low, high = np.nanquantile(np.concatenate(draws), [0.025, 0.975])
    return float(low), float(high)


def cluster_mean(sample: SortedSample, counts: Counts) -> Floats:
    """The mean of all drawn values; NaN where none was drawn."""
    weights = counts[:, sample.clusters]
    with np.errstate(invalid="ignore"):
        return np.asarray(weights @ sample.values / weights.sum(axis=1))


def cluster_percentile(percent: float) -> Statistic:
    """A percentile by linear interpolation, as numpy computes it; NaN where nothing was drawn."""

    def statistic(sample: SortedSample, counts: Counts) -> Floats:
        # Sorted values and cumulative weights give the order statistics without repeating any value.
        cumulative = counts[:, sample.clusters].cumsum(axis=1)
        rank = np.maximum(cumulative[:, -1] - 1, 0) * percent / 100
        low = np.floor(rank)
        below, above = (_value_at(sample.values, cumulative, place) for place in (low, np.ceil(rank)))
        result: Floats = below + (rank - low) * (above - below)
        result[cumulative[:, -1] == 0] = np.nan
        return result

    return statistic


def _value_at(values: Floats, cumulative: Counts, rank: Floats) -> Floats:
    """The value at a zero-based rank, where each value counts as often as it was drawn."""
    places = np.minimum((cumulative <= rank[:, None]).sum(axis=1), len(values) - 1)
    result: Floats = values[places]
    return result


def _sort(side: Clustered, numbers: dict[Hashable, int]) -> SortedSample:
    values = np.asarray([value for _, value in side], dtype=np.float64)
    clusters = np.asarray([numbers[name] for name, _ in side], dtype=np.int64)
    order = np.argsort(values, kind="stable")
    return SortedSample(values[order], clusters[order])


def _cluster_counts(samples: Sequence[SortedSample], clusters: int, seed: int, resamples: int) -> Iterator[Counts]:
    """How often each cluster is drawn, one row for each resample, in blocks that fit into memory."""
    random = np.random.default_rng(seed)
    rows = max(1, _CLUSTER_BLOCK // max(len(sample.values) for sample in samples))
    even = np.full(clusters, 1 / clusters)
    for start in range(0, resamples, rows):
        yield random.multinomial(clusters, even, size=min(rows, resamples - start))
