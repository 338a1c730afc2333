"""Theanine against its Algorithms 1 and 2 (section 2, appendix C), transcribed with plain sets and lists.

The graph is built by comparing every pair, components are searched, and every path is listed.
"""

import json
from collections.abc import Iterator
from hashlib import sha256
from random import Random

import pytest

from localmem.llm.scripted import ScriptedLLM
from localmem.systems.theanine.graph import BankGraph, draw_timelines
from localmem.systems.theanine.link import OTHER, RELATIONS, SAME_TOPIC
from localmem.types import Hit, Prompt, Unit
from tests.systems.fidelity.lives import SEEDS, life, shared_words
from tests.systems.theanine_script import make

Edges = set[tuple[str, str]]


def _relation(older: str, newer: str) -> str | None:
    """A label for each pair of events, None for about half of them."""
    number = sha256(f"{older}/{newer}".encode()).digest()[0]
    labels = (*RELATIONS, SAME_TOPIC)
    return labels[number % len(labels)] if number < 128 else None


def _script(prompt: Prompt) -> str:
    if prompt.name == "theanine/summarize":
        lines = [line.removeprefix("User: ") for line in prompt.inputs["dialogue"].splitlines() if "User: " in line]
        return json.dumps({"memories": lines})
    relation = _relation(prompt.inputs["earlier"], prompt.inputs["later"])
    if prompt.inputs["step"] == "1":
        return relation if relation in RELATIONS else OTHER
    return SAME_TOPIC if relation == SAME_TOPIC else "None"


def _component(unit: str, edges: Edges) -> set[str]:
    """Everything that links lead to or come from, taken without direction."""
    members = {unit}
    while more := {end for edge in edges if members & {*edge} for end in edge} - members:
        members |= more
    return members


def _link(memories: list[Unit], new: list[Unit], edges: Edges, j: int) -> Edges:
    """Algorithm 1: for each new memory the top j, their relations, and the most recent of each component."""
    added: Edges = set()
    for memory in new:
        nearest = sorted(memories, key=lambda old: -shared_words(old.text, memory.text))[:j]  # I-1; eq. 5
        related = [old for old in nearest if _relation(old.text, memory.text)]  # I-2; eq. 6
        for component in {frozenset(_component(old.id, edges)) for old in related}:  # eq. 7
            inside = [old for old in related if old.id in component]
            latest = max(inside, key=lambda old: (old.time, memories.index(old)))  # eq. 8
            added.add((latest.id, memory.id))
    return added


def _paths(start: str, edges: Edges) -> Iterator[tuple[str, ...]]:
    """Every directed path to a memory that nothing follows."""
    following = [target for source, target in sorted(edges) if source == start]
    for target in following:
        yield from ((start, *path) for path in _paths(target, edges))
    if not following:
        yield (start,)


def _timelines(hit: str, units: list[Unit], edges: Edges) -> set[tuple[str, ...]]:
    """Algorithm 2, eq. 9 and 10: the paths from the component's oldest memory that contain the hit.

    Where it does not lead to the hit, from the oldest one that does (told at the head of the module).
    """
    members = [unit for unit in units if unit.id in _component(hit, edges)]
    for oldest in sorted(members, key=lambda unit: (unit.time, units.index(unit))):
        if paths := {path for path in _paths(oldest.id, edges) if hit in path}:
            return paths
    raise AssertionError("a memory lies on a path from itself")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_graph_and_its_timelines_are_the_algorithms(seed: int) -> None:
    memory = make(llm=ScriptedLLM(_script))
    edges: Edges = set()
    for past in life(Random(seed), sessions=6):
        before = list(memory.bank.live())
        memory.apply(memory.end_session(past))
        edges |= _link(before, list(memory.bank.live())[len(before) :], edges, j=3)
        assert {(link.source, link.target) for link in memory.bank.links} == edges
    units, graph = list(memory.bank.live()), BankGraph.of(memory.bank).graph
    assert edges
    for unit in units:
        drawn = draw_timelines(graph, [Hit(unit, 1.0)], 60, str(seed))
        expected = _timelines(unit.id, units, edges)
        assert {tuple(each.id for each in timeline.units) for timeline in drawn} <= expected
        assert len(expected) > 6 or len(drawn) == len(expected)  # 60 draws leave out none of so few
