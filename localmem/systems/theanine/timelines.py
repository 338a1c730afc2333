"""Timelines as values: drawn for a hit, shortened to what a prompt bears, written out.

Knows the graph, and neither bank nor model. A timeline is units from the beginning of a story to its end so far, with
the relation that leads from each to the next (Theanine, Phase II-1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from random import Random

from localmem.systems.theanine import graph as graphs
from localmem.systems.theanine.graph import Graph
from localmem.text.dialogue import day
from localmem.types import Hit, Unit


@dataclass(frozen=True, slots=True)
class Timeline:
    """`steps[i]` leads from `units[i]` to `units[i + 1]`; None where units between the two are left out."""

    hit: Hit
    units: tuple[Unit, ...]
    steps: tuple[str | None, ...]

    def shortened(self, longest: int) -> "Timeline":
        """At most `longest` units: the hit, the last, the first, then those nearest to the hit."""
        if len(self.units) <= longest:
            return self
        at = self.units.index(self.hit.unit)
        by_distance = sorted(range(len(self.units)), key=lambda n: (abs(n - at), n))
        kept = sorted(list(dict.fromkeys([at, len(self.units) - 1, 0, *by_distance]))[:longest])
        steps = (self.steps[left] if right == left + 1 else None for left, right in pairwise(kept))
        return Timeline(self.hit, tuple(self.units[n] for n in kept), tuple(steps))


def drawn(graph: Graph, hits: Iterable[Hit], n: int, seed: str) -> list[Timeline]:
    """`n` timelines for each hit, drawn independently; of equal ones the first. The same seed draws the same."""
    found: dict[tuple[int, ...], Timeline] = {}
    for hit in hits:
        position = graph.place[hit.unit.id]
        for number in range(n):
            path = graphs.draw(graph, position, random_of(seed, hit.unit.id, str(number)))
            found.setdefault(tuple(path), _timeline(graph, hit, path))
    return list(found.values())


def random_of(*names: str) -> Random:
    """A generator whose numbers follow from the names alone."""
    digest = sha256("\0".join(names).encode()).digest()
    return Random(int.from_bytes(digest[:8], "big"))  # noqa: S311  # draws memories, guards nothing


def written(timeline: Timeline) -> str:
    """One event a line, oldest first, each with the relation that leads to it and its date."""
    lines = [_event(timeline.units[0])]
    for step, unit in zip(timeline.steps, timeline.units[1:], strict=True):
        lines.append(f"- ({step}) {_event(unit)}" if step else f"- [...] {_event(unit)}")
    return "\n".join(lines)


def units_of(timelines: Sequence[Timeline]) -> tuple[Hit, ...]:
    """Every unit once, in the order shown; one that came along a timeline has the score of the hit that led to it."""
    hits: dict[str, Hit] = {}
    for timeline in timelines:
        for unit in timeline.units:
            if unit.id == timeline.hit.unit.id:
                hits[unit.id] = timeline.hit  # takes the place of an earlier timeline's score, not of its order
            else:
                hits.setdefault(unit.id, Hit(unit, timeline.hit.score))
    return tuple(hits.values())


def _timeline(graph: Graph, hit: Hit, path: Sequence[int]) -> Timeline:
    units = tuple(graph.units[position] for position in path)
    return Timeline(hit, units, tuple(graphs.relations(graph, path)))


def _event(unit: Unit) -> str:
    return f"{day(unit.time)}: {unit.text}"
