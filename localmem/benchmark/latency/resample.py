"""Bootstrap intervals of the ratio between two runs' figures, from their raw requests. Knows numbers and clusters only.

Requests of one conversation depend on one another: a long one stays long. So whole conversations are drawn, not single
requests (hierarchical data: Davison and Hinkley, 1997, section 3.8), and one that both runs held is drawn for both at
once, which leaves out of the ratio what only its length did.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Measured = Sequence[tuple[Hashable, float]]  # the conversation of a request, and its value

_BLOCK = 2_000_000  # weights held at once


class Ratio(NamedTuple):
    """`theirs` by `ours`, with the 95% interval; no interval where there are fewer than two conversations."""

    ratio: float
    low: float | None
    high: float | None


class Sorted(NamedTuple):
    """Values in rising order, and the number of the conversation that each belongs to."""

    values: Floats
    clusters: NDArray[np.int64]


Figure = Callable[[Sorted, NDArray[np.int64]], Floats]  # of values whose conversations are drawn so often, a row each


def ratio(ours: Measured, theirs: Measured, figure: Figure, *, seed: int = 0, resamples: int = 2000) -> Ratio:
    """How the figure of `theirs` stands to that of `ours`; both must hold values above zero."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in (*ours, *theirs)))}
    sides = [_sorted(side, numbers) for side in (ours, theirs)]
    whole = np.ones((1, len(numbers)), dtype=np.int64)
    first, second = (float(figure(side, whole)[0]) for side in sides)
    if min(len(set(side.clusters.tolist())) for side in sides) < 2:
        return Ratio(second / first, None, None)
    found = np.concatenate([_ratios(sides, draws, figure) for draws in _draws(sides, len(numbers), seed, resamples)])
    low, high = np.nanquantile(found, [0.025, 0.975])
    return Ratio(second / first, float(low), float(high))


def mean(held: Sorted, drawn: NDArray[np.int64]) -> Floats:
    """The mean of all values that were drawn; not a number where none was."""
    weights = drawn[:, held.clusters]
    with np.errstate(invalid="ignore"):
        return np.asarray(weights @ held.values / weights.sum(axis=1))


def percentile(percent: float) -> Figure:
    """The percentile as numpy takes it, by linear interpolation, of values that stand there as often as drawn."""

    def figure(held: Sorted, drawn: NDArray[np.int64]) -> Floats:
        upto = drawn[:, held.clusters].cumsum(axis=1)
        rank = np.maximum(upto[:, -1] - 1, 0) * percent / 100
        low = np.floor(rank)
        below, above = (_at(held.values, upto, place) for place in (low, np.ceil(rank)))
        found: Floats = below + (rank - low) * (above - below)
        found[upto[:, -1] == 0] = np.nan
        return found

    return figure


def _at(values: Floats, upto: NDArray[np.int64], rank: Floats) -> Floats:
    """The value at a rank, from 0, where each stands as often as it was drawn."""
    places = np.minimum((upto <= rank[:, None]).sum(axis=1), len(values) - 1)
    found: Floats = values[places]
    return found


def _sorted(side: Measured, numbers: dict[Hashable, int]) -> Sorted:
    values = np.asarray([value for _, value in side], dtype=np.float64)
    clusters = np.asarray([numbers[name] for name, _ in side], dtype=np.int64)
    order = np.argsort(values, kind="stable")
    return Sorted(values[order], clusters[order])


def _draws(sides: Sequence[Sorted], clusters: int, seed: int, resamples: int) -> Sequence[NDArray[np.int64]]:
    """How often each conversation is drawn, a row for each resample, in blocks that fit into memory."""
    random = np.random.default_rng(seed)
    rows = max(1, _BLOCK // max(len(side.values) for side in sides))
    even = np.full(clusters, 1 / clusters)
    sizes = (min(rows, resamples - start) for start in range(0, resamples, rows))
    return [random.multinomial(clusters, even, size=size) for size in sizes]


def _ratios(sides: Sequence[Sorted], drawn: NDArray[np.int64], figure: Figure) -> Floats:
    ours, theirs = (figure(side, drawn) for side in sides)
    return np.asarray(theirs / ours)
