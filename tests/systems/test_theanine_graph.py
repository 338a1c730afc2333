"""Theanine's graph: growing, the rule of the most recent, and drawing timelines uniformly without listing them."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from math import sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.bank import Bank
from localmem.errors import BadInput
from localmem.systems.theanine.graph import BankGraph, Graph, draw_path, most_recent
from localmem.types import AddLink, AddUnit, Link, RetireUnit
from tests.fakes import START, unit
from tests.systems.theanine_script import count_paths

Steps = Sequence[tuple[int, int]]


def _graph(steps: Steps, hours: Sequence[int]) -> Graph:
    """Unit n happened `hours[n]` after the start."""
    units = [unit(str(n), time=START + timedelta(hours=hour)) for n, hour in enumerate(hours)]
    return Graph().extend(units, [Link(str(a), str(b), "Cause") for a, b in steps])


def _in_order(steps: Steps, size: int) -> Graph:
    return _graph(steps, range(size))


@st.composite
def graphs(draws: st.DrawFn) -> Graph:
    """Up to nine units, added in an order that need not be that of their times."""
    hours = draws(st.lists(st.integers(0, 4), min_size=1, max_size=9))
    by_time = sorted(range(len(hours)), key=lambda n: (hours[n], n))
    possible = [(a, b) for i, a in enumerate(by_time) for b in by_time[i + 1 :]]
    steps = draws(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    return _graph(steps, hours)


def _paths(graph: Graph, start: int) -> list[list[int]]:
    """Every path from `start` to a unit that nothing follows, by listing them."""
    if not graph.after[start]:
        return [[start]]
    return [[start, *path] for step in graph.after[start] for path in _paths(graph, step)]


def _ancestors(graph: Graph, position: int) -> set[int]:
    return {position}.union(*(_ancestors(graph, step) for step in graph.before[position]))


def _timelines(graph: Graph, hit: int) -> list[list[int]]:
    """Eq. 10 word for word, from the oldest unit that leads to the hit."""
    start = min(_ancestors(graph, hit), key=graph.order)
    return [path for path in _paths(graph, start) if hit in path]


def _components(graph: Graph) -> list[set[int]]:
    """Connected components, by spreading until nothing changes."""
    parts = [{position} for position in range(len(graph.units))]
    for step in graph.relations:
        joined = [part for part in parts if part & set(step)]
        parts = [part for part in parts if not part & set(step)] + [set().union(*joined)]
    return parts


@given(graphs(), st.data(), st.integers())
def test_a_drawn_timeline_is_one_of_the_papers(graph: Graph, data: st.DataObject, seed: int) -> None:
    hit = data.draw(st.sampled_from(range(len(graph.units))))
    path = draw_path(graph, hit, Random(seed))
    assert path in _timelines(graph, hit)
    assert path[0] == draw_path(graph, hit, Random(0))[0]
    assert not graph.before[path[0]]
    assert not graph.after[path[-1]]
    assert [graph.order(position) for position in path] == sorted(graph.order(position) for position in path)
    assert [graph.relations[step] for step in pairwise(path)] == ["Cause"] * (len(path) - 1)


@given(graphs(), st.data())
def test_as_many_timelines_are_counted_as_there_are(graph: Graph, data: st.DataObject) -> None:
    hit = data.draw(st.sampled_from(range(len(graph.units))))
    mantissa, exponent = count_paths(graph, hit)
    assert mantissa * 2**exponent == len(_timelines(graph, hit))


@given(graphs(), st.data())
def test_the_oldest_of_the_component_is_the_start_where_it_leads_to_the_hit(graph: Graph, data: st.DataObject) -> None:
    hit = data.draw(st.sampled_from(range(len(graph.units))))
    component = next(part for part in _components(graph) if hit in part)
    oldest = min(component, key=graph.order)
    if oldest in _ancestors(graph, hit):
        assert draw_path(graph, hit, Random(0))[0] == oldest


@given(graphs(), st.data())
def test_at_most_one_link_a_component_and_to_its_most_recent(graph: Graph, data: st.DataObject) -> None:
    labelled = data.draw(st.sets(st.sampled_from(range(len(graph.units)))))
    expected = [max(part & labelled, key=graph.order) for part in _components(graph) if part & labelled]
    assert most_recent(graph, labelled) == sorted(expected, key=graph.order)


DIAMONDS = [(3 * n + a, 3 * n + b) for n in range(4) for a, b in ((0, 1), (0, 2), (1, 3), (2, 3))]
LATTICE = [
    *((5 * row + column, 5 * row + column + 1) for row in range(4) for column in range(4)),
    *((5 * row + column, 5 * row + column + 5) for row in range(3) for column in range(5)),
]
LOPSIDED = [(0, 1), (0, 2), (2, 3), (2, 4), (2, 5), (3, 6), (4, 6), (5, 6), (6, 7), (6, 8), (1, 8)]
TWO_STARTS = [(0, 3), (1, 2), (1, 3), (2, 3), (2, 4), (3, 5), (3, 6), (4, 6), (6, 7), (5, 7)]


@pytest.mark.parametrize(
    "steps, size, hit",
    [
        pytest.param(DIAMONDS, 13, 0, id="diamonds from the start"),
        pytest.param(DIAMONDS, 13, 6, id="diamonds through the middle"),
        pytest.param(DIAMONDS, 13, 12, id="diamonds to the end"),
        pytest.param(LATTICE, 20, 7, id="lattice"),
        pytest.param(LOPSIDED, 9, 0, id="branches of unequal width"),
        pytest.param(LOPSIDED, 9, 6, id="both ways from the hit"),
        pytest.param(TWO_STARTS, 8, 4, id="a start that does not lead to the hit"),
    ],
)
def test_every_timeline_is_as_likely(steps: Steps, size: int, hit: int) -> None:
    graph = _in_order(steps, size)
    every = [tuple(path) for path in _timelines(graph, hit)]
    draws = 400 * len(every)
    random = Random(20250101)
    counts = Counter(tuple(draw_path(graph, hit, random)) for _ in range(draws))
    assert set(counts) == set(every)
    square = sum((counts[path] - 400) ** 2 / 400 for path in every)
    assert square < _chi_square_bound(len(every) - 1)


def _chi_square_bound(degrees: int) -> float:
    """What a uniform draw stays under in 999 of 1,000 runs (Wilson and Hilferty's approximation)."""
    spread = 2 / (9 * max(1, degrees))
    bound = max(1, degrees) * (1 - spread + 3.09 * sqrt(spread)) ** 3
    return float(bound)


def test_the_bound_would_show_a_walk_that_is_not_uniform() -> None:
    """A walk that takes every step with the same chance prefers the short branch of LOPSIDED."""
    graph = _in_order(LOPSIDED, 9)
    every = [tuple(path) for path in _timelines(graph, 0)]
    random = Random(1)

    def walk() -> tuple[int, ...]:
        path = [0]
        while graph.after[path[-1]]:
            path.append(random.choice(graph.after[path[-1]]))
        return tuple(path)

    counts = Counter(walk() for _ in range(400 * len(every)))
    assert sum((counts[path] - 400) ** 2 / 400 for path in every) > 10 * _chi_square_bound(len(every) - 1)


def test_the_same_generator_draws_the_same() -> None:
    graph = _in_order(LATTICE, 20)
    assert [draw_path(graph, 7, Random(n)) for n in range(9)] == [draw_path(graph, 7, Random(n)) for n in range(9)]
    assert len({tuple(draw_path(graph, 7, Random(n))) for n in range(9)}) > 1


def test_counts_beyond_any_float_agree_with_exact_ones() -> None:
    random = Random(5)
    steps = [(a, b) for b in range(1, 3000) for a in random.sample(range(max(0, b - 5), b), min(3, b))]
    graph = _in_order(steps, 3000)
    hit = 1500
    lead = {0: 1}
    for position in range(1, hit + 1):
        lead[position] = sum(lead[before] for before in graph.before[position])
    onward: dict[int, int] = {}
    for position in reversed(range(hit, 3000)):
        onward[position] = sum(onward[after] for after in graph.after[position]) or 1
    exact = lead[hit] * onward[hit]
    mantissa, exponent = count_paths(graph, hit)
    assert exact.bit_length() > 1024  # beyond any float
    assert exponent == exact.bit_length()
    assert mantissa == pytest.approx((exact >> (exponent - 60)) / 2**60, rel=1e-11)


def test_a_long_chain_is_no_deep_recursion() -> None:
    graph = _in_order(list(pairwise(range(20_000))), 20_000)
    assert draw_path(graph, 10_000, Random(0)) == list(range(20_000))


def test_where_the_oldest_does_not_lead_to_the_hit_the_oldest_that_does_is_the_start() -> None:
    # Two stories, 0 -> 2 and 1 -> 3, joined by 4. The component's oldest is 0, which no link leads from to 3.
    graph = _in_order([(0, 2), (1, 3), (2, 4), (3, 4), (4, 5)], 6)
    assert graph.component(0) == graph.component(3)
    assert draw_path(graph, 3, Random(0))[0] == 1
    assert draw_path(graph, 3, Random(0)) == [1, 3, 4, 5]
    assert {tuple(draw_path(graph, 4, Random(n))) for n in range(20)} == {(0, 2, 4, 5)}  # only 0 leads to 4
    assert draw_path(graph, 0, Random(0)) == [0, 2, 4, 5]


def test_a_unit_without_links_is_its_own_timeline() -> None:
    assert draw_path(_in_order([], 2), 1, Random(0)) == [1]


def test_a_link_back_in_time_is_refused() -> None:
    with pytest.raises(BadInput, match="'1' back to the older '0'"):
        _graph([(0, 1), (1, 0)], [0, 0])
    with pytest.raises(BadInput, match="'1' back to the older '2'"):
        _graph([(2, 0), (0, 1), (1, 2)], [0, 0, 0])
    with pytest.raises(BadInput, match="'0' back to the older '1'"):
        _graph([(0, 1)], [5, 0])


def test_an_edited_unit_keeps_its_links_to_units_of_its_time() -> None:
    """Sessions that are dated by their day alone end at one time; an edit comes after all of them."""
    graph = _graph([(0, 1), (2, 0)], [0, 0, 0])
    assert draw_path(graph, 2, Random(0)) == [2, 0, 1]


def test_a_unit_that_was_learned_late_stands_where_its_time_is() -> None:
    graph = _graph([(0, 1), (2, 0)], [5, 6, 1])
    assert draw_path(graph, 1, Random(0)) == [2, 0, 1]


@given(graphs(), st.data())
def test_a_graph_grown_in_parts_is_the_same_and_the_old_one_stays(graph: Graph, data: st.DataObject) -> None:
    split = data.draw(st.integers(0, len(graph.units)))
    links = [Link(str(a), str(b), "Cause") for a, b in graph.relations]
    within = [link for link in links if int(link.source) < split and int(link.target) < split]
    first = Graph().extend(graph.units[:split], within)
    before = (list(first.after), list(first.before), dict(first.relations), list(first.leader))
    larger = first.extend(graph.units[split:], [link for link in links if link not in within])
    assert before == (list(first.after), list(first.before), dict(first.relations), list(first.leader))
    assert {place: sorted(steps) for place, steps in enumerate(larger.after)} == {
        place: sorted(steps) for place, steps in enumerate(graph.after)
    }
    assert larger.relations == graph.relations
    assert _parts(larger) == _parts(graph)


def _parts(graph: Graph) -> set[frozenset[int]]:
    parts: dict[int, set[int]] = {}
    for position in range(len(graph.units)):
        parts.setdefault(graph.component(position), set()).add(position)
    return {frozenset(part) for part in parts.values()}


def _bank(*steps: tuple[str, str]) -> Bank:
    names = dict.fromkeys(name for step in steps for name in step)
    units = [AddUnit(unit(name, time=START + timedelta(hours=n)), START) for n, name in enumerate(names)]
    return Bank().apply([*units, *(AddLink(Link(a, b, "Want"), START) for a, b in steps)])


def test_the_held_graph_follows_its_bank() -> None:
    bank = _bank(("a", "b"), ("b", "c"))
    graph = BankGraph.of(bank)
    assert graph.advance(bank) is graph
    added = unit("d", time=START + timedelta(hours=9))
    grown = bank.apply([AddUnit(added, START), AddLink(Link("b", "d", "React"), START)])
    after = graph.advance(grown)
    assert after.graph.after[after.graph.place["b"]] == (2, 3)
    assert graph.graph.after[1] == (2,)
    assert after.graph.relations == BankGraph.of(grown).graph.relations


def test_retired_units_are_in_no_timeline() -> None:
    bank = _bank(("a", "b"), ("b", "c"))
    retired = bank.apply([RetireUnit("b", "user", "wrong", START)])
    graph = BankGraph.of(bank).advance(retired).graph
    assert set(graph.place) == {"a", "c"}
    assert draw_path(graph, graph.place["c"], Random(0)) == [graph.place["c"]]


def test_another_bank_is_read_afresh() -> None:
    other = _bank(("x", "y"))
    assert set(BankGraph.of(_bank(("a", "b"))).advance(other).graph.place) == {"x", "y"}
