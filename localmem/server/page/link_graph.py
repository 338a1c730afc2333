"""The links of a memory as timelines: each group of linked units in order of time, with arcs for its links.

Pure functions; the template draws what they place, as SVG without a library.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from localmem.bank import Bank
from localmem.server.page.memory_views import split_speaker
from localmem.types import Link, Unit

ROW = 64  # height of a unit's row
_LEVELS = 4  # how far arcs reach to the left of the axis, in steps
_STEP = 30  # width of a step
_LABEL = 112  # width of an arc's label
_LINE = 15  # its height
_WORDS = 560  # width of what stands right of the axis
_MOST = 60  # units of one timeline, the latest
_TEXT = 72  # characters of a unit's text on one line


@dataclass(frozen=True, slots=True)
class Node:
    """A unit on its timeline, `y` from the top."""

    unit: Unit
    label: str
    y: int
    is_live: bool


@dataclass(frozen=True, slots=True)
class Arc:
    """A link as a path, and where its label stands."""

    path: str
    label: str
    x: int
    y: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """A group of linked units, oldest first, with its links, `earlier` of them left out. `axis` is that of time."""

    nodes: Sequence[Node]
    arcs: Sequence[Arc]
    axis: int
    width: int
    height: int
    earlier: int


def group_links(bank: Bank) -> list[tuple[list[Unit], list[Link]]]:
    """The groups of units that links connect, each oldest first with its links, the group changed last first."""
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        parents.setdefault(name, name)
        while parents[name] != name:
            parents[name] = parents[parents[name]]
            name = parents[name]
        return name

    for link in bank.links:
        parents[root(link.source)] = root(link.target)
    members: defaultdict[str, list[Unit]] = defaultdict(list)
    links: defaultdict[str, list[Link]] = defaultdict(list)
    for name in parents:
        members[root(name)].append(bank.units[name])
    for link in bank.links:
        links[root(link.source)].append(link)
    groups = [(sorted(units, key=lambda unit: unit.time), links[name]) for name, units in members.items()]
    return sorted(groups, key=lambda group: max(unit.learned for unit in group[0]), reverse=True)


def draw_timeline(units: Sequence[Unit], links: Iterable[Link], bank: Bank) -> Timeline:
    """The latest units of a group as rows on an axis of time, with an arc from each link's one end to the other."""
    earlier, units = max(0, len(units) - _MOST), units[-_MOST:]
    place = {unit.id: number * ROW + ROW // 2 for number, unit in enumerate(units)}
    nodes = [Node(unit, _ellipsis(split_speaker(unit)[2]), place[unit.id], bank.is_live(unit.id)) for unit in units]
    drawn = (link for link in links if link.source in place and link.target in place)
    spans = {link: (place[link.source], place[link.target]) for link in drawn}
    axis = _LABEL + _STEP * max((_level(*span) for span in spans.values()), default=0)
    arcs = _spread_labels(_arc(link, axis, *span) for link, span in spans.items())
    height = max(len(units) * ROW, arcs[-1].y + _LINE if arcs else 0)
    return Timeline(nodes, arcs, axis, axis + _WORDS, height, earlier)


def _level(start: int, end: int) -> int:
    return min(1 + abs(end - start) // ROW, _LEVELS)


def _arc(link: Link, axis: int, start: int, end: int) -> Arc:
    apex = axis - _STEP * _level(start, end)
    control = axis - (axis - apex) * 4 // 3  # a cubic curve reaches three quarters of the way to its control points
    relation, _, _ = link.relation.partition(":")
    label = relation if link.probability is None else f"{relation} {link.probability:.2f}"
    path = f"M {axis} {start} C {control} {start}, {control} {end}, {axis} {end}"
    return Arc(path, label, apex - 8, (start + end) // 2, link.source, link.target)


def _spread_labels(arcs: Iterable[Arc]) -> list[Arc]:
    """The arcs, a label further down where it would lie over another: at one height they are wider than the steps."""
    spread: list[Arc] = []
    for arc in sorted(arcs, key=lambda arc: arc.y):
        spread.append(replace(arc, y=max(arc.y, spread[-1].y + _LINE if spread else 0)))
    return spread


def _ellipsis(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _TEXT else f"{words[: _TEXT - 1]}…"
