"""Percentile bootstrap intervals (Efron and Tibshirani, 1993, chapter 13) of means, differences and ratios.

Pure functions of numbers. `estimate` and `difference` resample values as if they were independent, which makes the
intervals of questions about one conversation somewhat narrow. `cluster_estimate` and `cluster_ratio` resample whole
clusters (hierarchical data: Davison and Hinkley, 1997, section 3.8): questions about one person, and requests of one
conversation, depend on one another. A cluster that is in both samples is drawn for both at once, so that its length
cancels out of the ratio.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localmem.errors import BadInput

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Clustered = Sequence[tuple[Hashable, float]]  # the cluster and the value of each observation

_BLOCK = 256  # independent resamples at once
_CLUSTER_BLOCK = 2_000_000  # weights in memory at once


class Estimate(NamedTuple):
    """A mean and its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """For JSON, with four decimals."""
        return {name: round(value, 4) for name, value in self._asdict().items()}

    @classmethod
    def of(cls, figures: Mapping[str, float]) -> "Estimate":
        """From what `as_dict` returned; other entries are ignored."""
        return cls(figures["mean"], figures["low"], figures["high"])

    def as_text(self, sign: str = "") -> str:
        """For a table, such as 0.612 [0.580, 0.641]; `sign="+"` shows the sign."""
        return f"{self.mean:{sign}.3f} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]"


class Resampling(NamedTuple):
    """The seed and the number of resamples of every interval of a report; the results are for JSON."""

    seed: int = 0
    resamples: int = 2000

    def mean(self, values: Sequence[float]) -> dict[str, float]:
        """See `estimate`."""
        return estimate(values, seed=self.seed, resamples=self.resamples).as_dict()

    def cluster_mean(self, sample: Clustered) -> dict[str, float]:
        """See `cluster_estimate`."""
        return cluster_estimate(sample, seed=self.seed, resamples=self.resamples).as_dict()

    def difference(self, ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
        """See `difference`."""
        return difference(ours, theirs, seed=self.seed, resamples=self.resamples).as_dict()


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


def estimate(values: Sequence[float], *, seed: int = 0, resamples: int = 2000) -> Estimate:
    """The mean of at least one value with its interval; the same seed gives the same interval. Raises BadInput."""
    if not values:
        raise BadInput("cannot take the mean of no values; give at least one value")
    sample = np.asarray(values, dtype=np.float64)
    low, high = np.quantile(_resampled_means(sample, seed, resamples), [0.025, 0.975])
    return Estimate(float(sample.mean()), float(low), float(high))


def difference(ours: Sequence[float], theirs: Sequence[float], *, seed: int = 0, resamples: int = 2000) -> Estimate:
    """The mean of `ours` minus that of `theirs`, paired by position. Raises BadInput for different lengths."""
    if len(ours) != len(theirs):
        raise BadInput(f"{len(ours)} and {len(theirs)} values cannot be paired; give two runs over the same questions")
    return estimate([a - b for a, b in zip(ours, theirs, strict=True)], seed=seed, resamples=resamples)


def cluster_estimate(sample: Clustered, *, seed: int = 0, resamples: int = 2000) -> Estimate:
    """The mean of at least one value, with the interval over whole clusters drawn again. Raises BadInput.

    With one cluster the values themselves are drawn, which says nothing about other clusters.
    """
    clusters = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in sample))}
    if len(clusters) < 2:
        return estimate([value for _, value in sample], seed=seed, resamples=resamples)
    values = _sort(sample, clusters)
    blocks = _cluster_counts([values], len(clusters), seed, resamples)
    low, high = np.quantile(np.concatenate([cluster_mean(values, counts) for counts in blocks]), [0.025, 0.975])
    return Estimate(float(values.values.mean()), float(low), float(high))


def cluster_ratio(
    ours: Clustered, theirs: Clustered, statistic: Statistic, *, seed: int = 0, resamples: int = 2000
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


def _resampled_means(sample: Floats, seed: int, resamples: int) -> Floats:
    random = np.random.default_rng(seed)
    means: list[Floats] = []
    for start in range(0, resamples, _BLOCK):
        places = random.integers(len(sample), size=(min(_BLOCK, resamples - start), len(sample)))
        means.append(sample[places].mean(axis=1))
    return np.concatenate(means)
