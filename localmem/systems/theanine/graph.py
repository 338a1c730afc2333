"""The memory graph of Theanine as a value: positions, links both ways, connected components; and drawing one path.

Pure functions of units and links; knows no bank, model or prompt. Every link leads from an earlier unit to a later one
(by time, then by order of addition), so the graph has no cycle. Paths are counted and drawn, never listed: their number
doubles with every fork, so a component of 10,000 units can hold more of them than there are atoms.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from math import frexp, ldexp
from random import Random

from localmem.errors import BadInput
from localmem.types import Link, Unit

Neighbours = Sequence[tuple[int, ...]]

# A number of paths as mantissa and exponent (value = mantissa * 2 ** exponent, mantissa in [0.5, 1) or 0). Exact
# integers would need a bit for every fork and make the cost quadratic. Each addition rounds by at most 2^-53, so over
# a path of 100,000 units a path's chance is off by a factor of 1 ± 1e-11: no sample that could be drawn would show it.
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

    def grown(self, units: Iterable[Unit], links: Iterable[Link]) -> "Graph":
        """The graph with more units and links; this one stays as it is. Links to units it has not got are left out.

        Costs one flat copy besides what is new. Raises BadInput for a link from a later unit to an earlier one.
        """
        draft = _Draft(self)
        for unit in units:
            draft.add(unit)
        for link in links:
            draft.link(link)
        return draft.graph()

    def order(self, position: int) -> tuple[datetime, int]:
        """What "older" and "more recent" go by: the time of the event, then the order of addition."""
        return self.units[position].time, position

    def component(self, position: int) -> int:
        """The position that stands for the connected component (links taken without direction)."""
        return _leader(self.leader, position)


class _Draft:
    """A copy to grow. Neighbours are tuples, so that the copy shares them until they change."""

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
        if (self._units[source].time, source) >= (self._units[target].time, target):
            raise BadInput(
                f"a link leads from unit {link.source!r} back to the older {link.target!r}; "
                "rebuild this bank with `localmem rebuild`"
            )
        self._after[source] += (target,)
        self._before[target] += (source,)
        self._relations[source, target] = link.relation
        self._join(source, target)

    def graph(self) -> Graph:
        return Graph(self._units, self._place, self._after, self._before, self._relations, self._leader, self._size)

    def _join(self, left: int, right: int) -> None:
        large, small = _leader(self._leader, left), _leader(self._leader, right)
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
    """Of each connected component the most recent of the labelled positions (eq. 7-8, Figure 3), in order of time."""
    chosen: dict[int, int] = {}
    for position in sorted(labelled, key=graph.order):
        chosen[graph.component(position)] = position  # a later one takes the place of an earlier one
    return sorted(chosen.values(), key=graph.order)


def oldest_ancestor(graph: Graph, hit: int) -> int:
    """Where the hit's timelines start: the oldest unit from which links lead to it (the hit itself if none do).

    Where the oldest unit of the component reaches the hit, this is that unit (eq. 9). The paper does not say what
    happens where it does not; it happens whenever a new unit joins two components, for one oldest unit then has no way
    to the other's units. Nothing is older than the unit found here, so nothing leads to it: the timeline still starts
    at the beginning of a story that contains the hit.
    """
    return _oldest(graph, _postorder(graph.before, hit))


def draw(graph: Graph, hit: int, random: Random) -> list[int]:
    """One timeline through `hit`, as positions, oldest first: uniform over all of eq. 10.

    Those are the directed paths from `oldest_ancestor` through the hit to a unit that nothing follows. A path is a way
    to the hit and a way on from it, chosen independently: each is walked from the hit outwards, taking each step in
    proportion to the number of ways that lie behind it. Linear in the units and links around the hit.
    """
    earlier = _postorder(graph.before, hit)
    to_hit = _ways(graph.before, earlier, _oldest(graph, earlier))
    onward = _ways(graph.after, _postorder(graph.after, hit), None)
    lead = _walk(graph.before, to_hit, hit, random)
    return [*reversed(lead), *_walk(graph.after, onward, hit, random)[1:]]


def count(graph: Graph, hit: int) -> Count:
    """How many timelines `draw` chooses from."""
    earlier = _postorder(graph.before, hit)
    to_hit = _ways(graph.before, earlier, _oldest(graph, earlier))[hit]
    onward = _ways(graph.after, _postorder(graph.after, hit), None)[hit]
    mantissa, shift = frexp(to_hit[0] * onward[0])
    return mantissa, to_hit[1] + onward[1] + shift


def relations(graph: Graph, path: Sequence[int]) -> list[str]:
    """The relation of each step of a path."""
    return [graph.relations[step] for step in pairwise(path)]


def _oldest(graph: Graph, ancestors: Sequence[int]) -> int:
    return min((position for position in ancestors if not graph.before[position]), key=graph.order)


def _postorder(neighbours: Neighbours, start: int) -> list[int]:
    """Everything that can be reached from `start`, each position after all that it leads to; `start` comes last."""
    seen = bytearray(len(neighbours))
    done: list[int] = []
    stack = [start]
    while stack:
        position = stack.pop()
        if position < 0:  # all that it leads to is done
            done.append(~position)
        elif not seen[position]:
            seen[position] = True
            stack.append(~position)
            stack += neighbours[position]
    return done


def _ways(neighbours: Neighbours, postorder: Sequence[int], goal: int | None) -> list[Count]:
    """For each position of `postorder` the number of ways from it to the goal, or to any without neighbours."""
    ways = [NONE] * len(neighbours)
    for position in postorder:
        steps = neighbours[position]
        if len(steps) == 1:  # no fork: as many as one step on
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
    """From `position` on to where it ends, each step in proportion to the ways behind it."""
    path = [position]
    while neighbours[position]:
        position = _step(neighbours[position], ways, ways[position], random)
        path.append(position)
    return path


def _step(steps: Sequence[int], ways: Sequence[Count], whole: Count, random: Random) -> int:
    """One of `steps`; `whole` is the sum of their ways."""
    if len(steps) == 1:
        return steps[0]
    rest = random.random()
    chosen = steps[0]
    for step in steps:
        mantissa, exponent = ways[step]
        if mantissa:
            chosen = step  # the last that is open, should rounding leave a rest
            rest -= ldexp(mantissa / whole[0], exponent - whole[1])
            if rest < 0:
                break
    return chosen
