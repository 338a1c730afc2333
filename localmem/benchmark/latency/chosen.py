"""Which points of a run are looked at together: those of one load, one line's worth of loads, a point and its partner.

Knows points and their order; draws and tells nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import log2
from typing import NamedTuple

from localmem.benchmark.latency.result import Load, Point

_USUAL = 8  # at once: the load that a headline is about, or the nearest to it


class Setting(NamedTuple):
    """Under which systems are compared: all but the system itself."""

    load: Load
    history: int
    cache: str


def setting(point: Point) -> Setting:
    """The point's."""
    return Setting(point.load, point.history, point.cache)


def idle(points: Iterable[Point]) -> list[Point]:
    """Those during which no session was being remembered."""
    return [point for point in points if not point.during_ends]


def usual(points: Sequence[Point]) -> Setting:
    """What most systems were measured under; among such, a warm cache, the history with most loads, and about eight at
    once. There must be a point.
    """
    systems = Counter(map(setting, points))
    loads = Counter((one.history, one.cache) for one in systems)

    def fit(one: Setting) -> tuple[float, ...]:
        return systems[one], one.cache == "warm", loads[one.history, one.cache], -_far(one.load), one.history

    return max(systems, key=fit)


def under(points: Iterable[Point], wanted: Setting) -> list[Point]:
    """Every system's point under this setting."""
    return [point for point in points if setting(point) == wanted]


def by_load(points: Sequence[Point], wanted: Setting) -> dict[str, dict[float, Point]]:
    """Of each system, with this history and cache, its points by how many talk at once, or come in a second."""
    held = [
        point
        for point in points
        if (point.history, point.cache, point.load.kind) == (wanted.history, wanted.cache, wanted.load.kind)
    ]
    return _lines(held, lambda point: amount(point.load))


def by_history(points: Sequence[Point], wanted: Setting) -> dict[str, dict[float, Point]]:
    """Of each system, under this load and cache, its points by the sessions that were held before."""
    held = [point for point in points if (point.load, point.cache) == (wanted.load, wanted.cache)]
    return _lines(held, lambda point: float(point.history))


def longest(points: Sequence[Point], of: Callable[[Point], Hashable], along: Callable[[Point], Hashable]) -> Setting:
    """Where the longest line is: its points are alike in `of` and differ in `along`. Among equal ones, the usual."""
    preferred = usual(points)
    lines: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
    for point in points:
        lines[of(point)].add(along(point))
    best = max(points, key=lambda point: (len(lines[of(point)]), _alike(setting(point), preferred)))
    return setting(best)


def partners(points: Sequence[Point]) -> list[tuple[Point, Point]]:
    """Each point measured while sessions were being remembered, behind the same one measured without."""
    quiet: Mapping[tuple[str, Setting], Point] = {(point.system, setting(point)): point for point in idle(points)}
    busy = [point for point in points if point.during_ends]
    found = ((quiet.get((point.system, setting(point))), point) for point in busy)
    return [(before, point) for before, point in found if before]


def amount(load: Load) -> float:
    """How much of its kind a load is."""
    return float(load.concurrency or 0) if load.kind == "closed" else load.rate or 0.0


def _lines(points: Iterable[Point], across: Callable[[Point], float]) -> dict[str, dict[float, Point]]:
    found: defaultdict[str, dict[float, Point]] = defaultdict(dict)
    for point in sorted(points, key=across):
        found[point.system][across(point)] = point
    return dict(found)


def _far(load: Load) -> float:
    return abs(log2(max(load.concurrency or 1, 1) / _USUAL)) if load.kind == "closed" else 100.0


def _alike(one: Setting, other: Setting) -> int:
    return sum(mine == theirs for mine, theirs in zip(one, other, strict=True))
