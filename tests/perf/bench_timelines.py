"""How the time to draw a Theanine timeline grows with the number of units. Prints one JSON document.

Two shapes of graph: "diamonds" is a chain in which every third unit forks into two that join again, so the number of
paths doubles every three units; "random" links each unit to two of the fifty before it. The query hits the middle of
the component, so every unit has to be visited; the cost should grow linearly.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from math import log10
from random import Random
from statistics import median
from time import perf_counter

from localmem.bank import Bank
from localmem.systems.theanine.graph import BankGraph, draw_path
from localmem.types import AddLink, AddUnit, Link, Unit
from tests.systems.theanine_script import count_paths

_START = datetime(2026, 1, 1, tzinfo=UTC)
_REACH = 50  # how many units back a link of the random shape may go


def measure(sizes: Sequence[int], seed: int, draws: int = 30) -> list[dict[str, object]]:
    """One row per shape and size; times in milliseconds on one core.

    `draw_ms` is one timeline from an existing graph (median of `draws`), `grow_ms` the graph's share of adding one
    unit, `build_ms` the graph of a whole bank, as at process start.
    """
    return [_row(shape, size, seed, draws) for shape in SHAPES for size in sizes]


def make_bank(shape: str, size: int, seed: int) -> Bank:
    """A bank whose `size` units form one component."""
    units = {unit.id: unit for unit in map(_unit, range(size))}
    edges = SHAPES[shape](size, Random(seed))
    return Bank(units=units, links=tuple(_link(*edge) for edge in edges))


def _row(shape: str, size: int, seed: int, draws: int) -> dict[str, object]:
    bank = make_bank(shape, size, seed)
    start = perf_counter()
    graph = BankGraph.of(bank)
    build_ms = _ms_since(start)
    larger = bank.apply([AddUnit(_unit(size), _START), AddLink(_link(size - 1, size), _START)])
    start = perf_counter()
    graph.advance(larger)
    grow_ms = _ms_since(start)
    times = [_time_draw(graph, size // 2, seed + number) for number in range(draws)]
    mantissa, exponent = count_paths(graph.graph, size // 2)
    return {
        "shape": shape,
        "units": size,
        "links": len(bank.links),
        "paths": f"10^{log10(mantissa) + exponent * log10(2):.0f}",
        "draw_ms": median(times),
        "draw_max_ms": max(times),
        "draw_us_per_unit": round(1000 * median(times) / size, 2),
        "grow_ms": grow_ms,
        "build_ms": build_ms,
    }


def _time_draw(graph: BankGraph, hit: int, seed: int) -> float:
    random = Random(seed)
    start = perf_counter()
    draw_path(graph.graph, hit, random)
    return _ms_since(start)


def _diamonds(size: int, _random: Random) -> Iterator[tuple[int, int]]:
    for tip in range(0, size - 1, 3):
        for side in (tip + 1, tip + 2):
            if side < size:
                yield tip, side
            if tip + 3 < size:
                yield side, tip + 3


def _random_links(size: int, random: Random) -> Iterator[tuple[int, int]]:
    for target in range(1, size):
        earlier = range(max(0, target - _REACH), target)
        for source in random.sample(earlier, min(2, len(earlier))):
            yield source, target


SHAPES: dict[str, Callable[[int, Random], Iterator[tuple[int, int]]]] = {
    "diamonds": _diamonds,
    "random": _random_links,
}


def _unit(number: int) -> Unit:
    time = _START + timedelta(minutes=number)
    return Unit(f"u{number}", f"event {number}", f"event {number}", "sentence", "", "s", (), time, time)


def _link(source: int, target: int) -> Link:
    return Link(f"u{source}", f"u{target}", "SameTopic")


def _ms_since(start: float) -> float:
    return round(1000 * (perf_counter() - start), 3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(measure(options.units, options.seed), indent=2))
