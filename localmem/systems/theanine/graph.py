"""The memory graph of Theanine as a value: positions, links both ways, connected components; and its timelines.

Every link leads from an earlier unit to a later one (by time, then by order of addition, unless an edit has put a unit
behind others of its time), and none closes a cycle.
Paths are counted and drawn, never listed: their number doubles with every fork, so a component of 10,000 units can hold
more of them than there are atoms. Does not depend on a model or a prompt.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import islice, pairwise
from math import frexp, ldexp
from random import Random

from localmem.bank import Bank
from localmem.errors import BadInput
from localmem.text.dialogue import day
from localmem.types import Hit, Link, Unit

Neighbours = Sequence[tuple[int, ...]]

# A number of paths as mantissa and exponent (value = mantissa * 2 ** exponent, mantissa in [0.5, 1) or 0). Exact
# integers would need a bit for every fork and make the cost quadratic. Each addition rounds by at most 2^-53, so over
# a path of 100,000 units a path's probability is off by a factor of 1 ± 1e-11, which no sample could show.
Count = tuple[float, int]
NONE: Count = (0.0, 0)
ONE: Count = (0.5, 1)


@dataclass(frozen=True, slots=True)
class Graph:
    """Units by position, in the order they were added, with the positions that links lead to and come from.

    `leader` and `size` are a union-find forest over the positions; `relations` is keyed by (source, target).
    """

    units: Sequence[Unit] = ()
    place: Mapping[str, int] = field(default_factory=dict)
    after: Neighbours = ()
    before: Neighbours = ()
    relations: Mapping[tuple[int, int], str] = field(default_factory=dict)
    leader: Sequence[int] = ()
    size: Sequence[int] = ()

    def extend(self, units: Iterable[Unit], links: Iterable[Link]) -> "Graph":
        """A graph with more units and links; this one does not change. Links to unknown units are left out.

        Costs one flat copy of this graph. Raises BadInput for a link from a later unit to an earlier one.
        """
        draft = _Draft(self)
        for unit in units:
            draft.add(unit)
        for link in links:
            draft.link(link)
        return draft.graph()

    def order(self, position: int) -> tuple[datetime, int]:
        """The sort key from older to more recent: the time of the event, then the order of addition."""
        return self.units[position].time, position

    def component(self, position: int) -> int:
        """The position that represents the connected component (links taken without direction)."""
        return _leader(self.leader, position)


@dataclass(frozen=True, slots=True)
class BankGraph:
    """A bank and the graph of its live units, extended with each new bank so that no recall pays for the whole bank."""

    bank: Bank
    graph: Graph

    @classmethod
    def of(cls, bank: Bank) -> "BankGraph":
        """The graph from all of the bank. Raises BadInput for links that no memory graph can have."""
        return cls(bank, Graph().extend(bank.live(), bank.links))

    def advance(self, bank: Bank) -> "BankGraph":
        """The graph of another bank: extended by what is new if the bank continues this one, else built from it."""
        if bank is self.bank:
            return self
        if not self._continues_in(bank):
            return BankGraph.of(bank)
        new = islice(bank.units.values(), len(self.bank.units), None)
        links = bank.links[len(self.bank.links) :]
        return BankGraph(bank, self.graph.extend((unit for unit in new if bank.is_live(unit.id)), links))

    def _continues_in(self, bank: Bank) -> bool:
        """Whether `bank` holds everything of ours in the same order, and retires no more units."""
        old = self.bank
        return (
            (bank.retired, bank.hidden) == (old.retired, old.hidden)
            and bank.links[: len(old.links)] == old.links
            and list(islice(bank.units.values(), len(old.units))) == list(old.units.values())
        )


class _Draft:
    """A mutable copy. Neighbours are tuples, so that the copy shares them until they change."""

    def __init__(self, graph: Graph) -> None:
        self._units = list(graph.units)
        self._place = dict(graph.place)
        self._after = list(graph.after)
        self._before = list(graph.before)
        self._relations = dict(graph.relations)
        self._leader = list(graph.leader)
        self._size = list(graph.size)

    def add(self, unit: Unit) -> None:
        position = len(self._units)
        self._units.append(unit)
        self._place[unit.id] = position
        self._after.append(())
        self._before.append(())
        self._leader.append(position)
        self._size.append(1)

    def link(self, link: Link) -> None:
        source, target = self._place.get(link.source), self._place.get(link.target)
        if source is None or target is None or (source, target) in self._relations:
            return
        if self._units[source].time > self._units[target].time or self._closes_cycle(source, target):
            raise BadInput(
                f"a link leads from unit {link.source!r} back to the older {link.target!r}; "
                "rebuild this bank with `localmem rebuild`"
            )
        self._after[source] += (target,)
        self._before[target] += (source,)
        self._relations[source, target] = link.relation
        self._join(source, target)

    def _closes_cycle(self, source: int, target: int) -> bool:
        """Whether the target leads to the source already, which only units of one time can."""
        same_time = self._units[source].time == self._units[target].time
        return same_time and source in _postorder(self._after, target)

    def graph(self) -> Graph:
        return Graph(self._units, self._place, self._after, self._before, self._relations, self._leader, self._size)

    def _join(self, first: int, second: int) -> None:
        large, small = _leader(self._leader, first), _leader(self._leader, second)
        if large == small:
            return
        if self._size[large] < self._size[small]:
            large, small = small, large
        self._leader[small] = large
        self._size[large] += self._size[small]


def _leader(leader: Sequence[int], position: int) -> int:
    """The root of a position's tree; trees are joined by size, so it is at most log2(n) steps away."""
    while leader[position] != position:
        position = leader[position]
    return position


def most_recent(graph: Graph, labelled: Iterable[int]) -> list[int]:
    """The most recent labelled position of each connected component (eq. 7-8, Figure 3), in order of time."""
    latest: dict[int, int] = {}
    for position in sorted(labelled, key=graph.order):
        latest[graph.component(position)] = position  # a later one replaces an earlier one
    return sorted(latest.values(), key=graph.order)


def draw_path(graph: Graph, hit: int, random: Random) -> list[int]:
    """One timeline through `hit`, as positions, oldest first: uniform over all of eq. 10.

    Those are the directed paths from the oldest ancestor through the hit to a unit that nothing follows. A path is a
    way to the hit and a way on from it, chosen independently: each is walked from the hit outwards, and each step is
    taken in proportion to the number of ways beyond it. Linear in the units and links around the hit.
    """
    earlier = _postorder(graph.before, hit)
    to_hit = _ways(graph.before, earlier, _oldest(graph, earlier))
    onward = _ways(graph.after, _postorder(graph.after, hit), None)
    lead = _walk(graph.before, to_hit, hit, random)
    return [*reversed(lead), *_walk(graph.after, onward, hit, random)[1:]]


def _oldest(graph: Graph, ancestors: Sequence[int]) -> int:
    """The start of the hit's timelines: the oldest unit from which links lead to it (the hit itself if none do).

    Where the oldest unit of the component reaches the hit, this is that unit (eq. 9). The paper leaves open what
    happens where it does not, which is the case whenever a new unit joins two components: the oldest unit of one has no
    way to the units of the other. Nothing is older than the unit returned here, so nothing leads to it: the timeline
    still starts at the beginning of a story that contains the hit.
    """
    return min((position for position in ancestors if not graph.before[position]), key=graph.order)


def _postorder(neighbours: Neighbours, start: int) -> list[int]:
    """Everything that can be reached from `start`, each position after all that it leads to; `start` comes last."""
    visited = bytearray(len(neighbours))
    order: list[int] = []
    stack = [start]
    while stack:
        position = stack.pop()
        if position < 0:  # everything it leads to has been added
            order.append(~position)
        elif not visited[position]:
            visited[position] = True
            stack.append(~position)
            stack += neighbours[position]
    return order


def _ways(neighbours: Neighbours, postorder: Sequence[int], goal: int | None) -> list[Count]:
    """For each position of `postorder` the number of ways from it to the goal, or to any without neighbours."""
    ways = [NONE] * len(neighbours)
    for position in postorder:
        steps = neighbours[position]
        if len(steps) == 1:  # no fork: as many as at the next position
            ways[position] = ways[steps[0]]
        elif steps:
            ways[position] = _sum([ways[step] for step in steps])
        else:
            ways[position] = ONE if goal in (None, position) else NONE
    return ways


def _sum(counts: Sequence[Count]) -> Count:
    top = max(exponent for _, exponent in counts)
    mantissa, shift = frexp(sum(ldexp(mantissa, exponent - top) for mantissa, exponent in counts))
    return mantissa, top + shift


def _walk(neighbours: Neighbours, ways: Sequence[Count], position: int, random: Random) -> list[int]:
    """From `position` to an end, each step in proportion to the ways beyond it."""
    path = [position]
    while neighbours[position]:
        position = _step(neighbours[position], ways, ways[position], random)
        path.append(position)
    return path


def _step(steps: Sequence[int], ways: Sequence[Count], total: Count, random: Random) -> int:
    """One of `steps`; `total` is the sum of their ways."""
    if len(steps) == 1:
        return steps[0]
    remainder = random.random()
    choice = steps[0]
    for step in steps:
        mantissa, exponent = ways[step]
        if mantissa:
            choice = step  # the last open one, should rounding leave a remainder
            remainder -= ldexp(mantissa / total[0], exponent - total[1])
            if remainder < 0:
                break
    return choice


@dataclass(frozen=True, slots=True)
class Timeline:
    """The units from the beginning of a story to its end so far (Phase II-1).

    `steps[i]` leads from `units[i]` to `units[i + 1]`; None where units between the two are omitted.
    """

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
            units = tuple(graph.units[position] for position in path)
            steps = tuple(graph.relations[step] for step in pairwise(path))
            timelines.setdefault(tuple(path), Timeline(hit, units, steps))
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


def _event(unit: Unit) -> str:
    return f"{day(unit.time)}: {unit.text}"
