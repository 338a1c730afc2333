"""Timelines as values: drawn for a hit, shortened for a prompt, written out.

A timeline is the units from the beginning of a story to its end so far, with the relation that leads from each to the
next (Theanine, Phase II-1). Does not depend on a bank or a model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from random import Random

from localmem.systems.theanine.graph import Graph, draw_path, path_relations
from localmem.text.dialogue import day
from localmem.types import Hit, Unit


@dataclass(frozen=True, slots=True)
class Timeline:
    """`steps[i]` leads from `units[i]` to `units[i + 1]`; None where units between the two are omitted."""

    hit: Hit
    units: tuple[Unit, ...]
    steps: tuple[str | None, ...]

    def shorten_to(self, longest: int) -> "Timeline":
        """At most `longest` units: the hit, the last, the first, then those nearest to the hit."""
        if len(self.units) <= longest:
            return self
        center = self.units.index(self.hit.unit)
        by_distance = sorted(range(len(self.units)), key=lambda n: (abs(n - center), n))
        selected = sorted(list(dict.fromkeys([center, len(self.units) - 1, 0, *by_distance]))[:longest])
        steps = (self.steps[first] if second == first + 1 else None for first, second in pairwise(selected))
        return Timeline(self.hit, tuple(self.units[n] for n in selected), tuple(steps))


def draw_timelines(graph: Graph, hits: Iterable[Hit], n: int, seed: str) -> list[Timeline]:
    """`n` timelines for each hit, drawn independently, without duplicates. The same seed draws the same."""
    timelines: dict[tuple[int, ...], Timeline] = {}
    for hit in hits:
        position = graph.place[hit.unit.id]
        for number in range(n):
            path = draw_path(graph, position, seeded_random(seed, hit.unit.id, str(number)))
            timelines.setdefault(tuple(path), _timeline(graph, hit, path))
    return list(timelines.values())


def seeded_random(*names: str) -> Random:
    """A random generator that depends on the names alone."""
    digest = sha256("\0".join(names).encode()).digest()
    return Random(int.from_bytes(digest[:8], "big"))  # noqa: S311  # not used for security


def timeline_text(timeline: Timeline) -> str:
    """One event a line, oldest first, each with the relation that leads to it and its date."""
    lines = [_event(timeline.units[0])]
    for step, unit in zip(timeline.steps, timeline.units[1:], strict=True):
        lines.append(f"- ({step}) {_event(unit)}" if step else f"- [...] {_event(unit)}")
    return "\n".join(lines)


def timeline_hits(timelines: Sequence[Timeline]) -> tuple[Hit, ...]:
    """Every unit once, in the order shown, with the score of its timeline's hit."""
    hits: dict[str, Hit] = {}
    for timeline in timelines:
        for unit in timeline.units:
            if unit.id == timeline.hit.unit.id:
                hits[unit.id] = timeline.hit  # replaces an earlier timeline's score, not its place
            else:
                hits.setdefault(unit.id, Hit(unit, timeline.hit.score))
    return tuple(hits.values())


def _timeline(graph: Graph, hit: Hit, path: Sequence[int]) -> Timeline:
    units = tuple(graph.units[position] for position in path)
    return Timeline(hit, units, tuple(path_relations(graph, path)))


def _event(unit: Unit) -> str:
    return f"{day(unit.time)}: {unit.text}"
