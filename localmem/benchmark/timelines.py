"""How long Theanine takes to draw a timeline, from banks whose paths nobody could list. Knows no backbone and no store.

Two shapes: "diamonds" is a chain in which every third unit forks into two that join again, so that the number of paths
doubles every three units; "random" links each unit to two of the fifty before it. The hit stands in the middle, so that
every unit of the component has to be looked at. The cost should grow as the number of units.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from math import log10
from random import Random
from statistics import median
from time import perf_counter

from localmem.bank import Bank
from localmem.errors import BadInput
from localmem.systems.theanine.graph import count, draw
from localmem.systems.theanine.held import Held
from localmem.types import AddLink, AddUnit, Link, Unit

_START = datetime(2026, 1, 1, tzinfo=UTC)
_REACH = 50  # how far back a unit of the random shape may be linked
_DRAWS = 30

Row = dict[str, object]


def measure(sizes: Sequence[int], seed: int, draws: int = _DRAWS) -> list[Row]:
    """One row a shape and size, times in milliseconds on one core.

    `draw` is one timeline from a graph that is held, median and slowest of `draws`; `grow` is the graph's part of a
    session's end of one unit; `build` is the graph made from a whole bank, as when a process starts. `paths` is the
    number of timelines to draw from, as a power of ten.
    """
    return [_row(shape, size, seed, draws) for shape in SHAPES for size in sizes]


def bank(shape: str, size: int, seed: int) -> Bank:
    """A bank of `size` units in one component. Raises BadInput for another shape or fewer than four units."""
    if shape not in SHAPES or size < 4:
        raise BadInput(f"cannot make {size} units of shape {shape!r}; give four or more, of {' or '.join(SHAPES)}")
    units = {unit.id: unit for unit in map(_unit, range(size))}
    steps = SHAPES[shape](size, Random(seed))  # noqa: S311  # shapes a benchmark
    return Bank(units=units, links=tuple(_link(*step) for step in steps))


def _row(shape: str, size: int, seed: int, draws: int) -> Row:
    made = bank(shape, size, seed)
    began = perf_counter()
    held = Held.of(made)
    built = perf_counter() - began
    more = made.apply([AddUnit(_unit(size), _START), AddLink(_link(size - 1, size), _START)])
    began = perf_counter()
    held.at(more)
    grown = perf_counter() - began
    hit = size // 2
    times = [_draw(held, hit, seed + number) for number in range(draws)]
    mantissa, exponent = count(held.graph, hit)
    return {
        "shape": shape,
        "units": size,
        "links": len(made.links),
        "paths": f"10^{log10(mantissa) + exponent * log10(2):.0f}",
        "draw_ms": _ms(median(times)),
        "draw_max_ms": _ms(max(times)),
        "draw_us_per_unit": round(median(times) / size * 1e6, 2),
        "grow_ms": _ms(grown),
        "build_ms": _ms(built),
    }


def _draw(held: Held, hit: int, seed: int) -> float:
    random = Random(seed)  # noqa: S311  # measures, guards nothing
    began = perf_counter()
    draw(held.graph, hit, random)
    return perf_counter() - began


def _diamonds(size: int, _random: Random) -> Iterator[tuple[int, int]]:
    for tip in range(0, size - 1, 3):
        for side in (tip + 1, tip + 2):
            if side < size:
                yield tip, side
            if tip + 3 < size:
                yield side, tip + 3


def _random(size: int, random: Random) -> Iterator[tuple[int, int]]:
    for target in range(1, size):
        before = range(max(0, target - _REACH), target)
        for source in random.sample(before, min(2, len(before))):
            yield source, target


SHAPES: dict[str, Callable[[int, Random], Iterator[tuple[int, int]]]] = {"diamonds": _diamonds, "random": _random}


def _unit(number: int) -> Unit:
    time = _START + timedelta(minutes=number)
    return Unit(f"u{number}", f"event {number}", f"event {number}", "sentence", "", "s", (), time, time)


def _link(source: int, target: int) -> Link:
    return Link(f"u{source}", f"u{target}", "SameTopic")


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
