"""Postings: look-ups are those of one table, whatever the order and the sizes of the additions."""

import random
from collections import Counter

import numpy as np

from localmem.retrieval.postings import Postings


def held(postings: Postings, term: int) -> dict[int, int]:
    found = postings.of([41_000, term])
    assert (found.spread(np.arange(2)) == 1).all()
    assert found.sizes.sum() == len(found.slots) == len(set(found.slots.tolist()))
    return dict(zip(found.slots.tolist(), found.counts.tolist(), strict=True))


def test_what_was_added_in_pieces_is_found_as_a_whole_also_when_slots_are_dropped() -> None:
    rng = random.Random(5)
    postings, units = Postings(), list[Counter[int]]()
    for size in [300, *(rng.randint(1, 30) for _ in range(60)), 0]:
        new = [[rng.randint(0, 40) for _ in range(rng.randint(0, 9))] for _ in range(size)]
        postings.add(len(units), new)
        units += map(Counter, new)
    assert len(postings._runs) < 8
    for term in range(42):
        assert held(postings, term) == {at: unit[term] for at, unit in enumerate(units) if unit[term]}
    kept = np.array(sorted(rng.sample(range(len(units)), 100)))
    postings.keep(kept)
    postings.add(100, [[7, 7, 3]])
    left = [*(units[at] for at in kept), Counter([7, 7, 3])]
    for term in range(42):
        assert held(postings, term) == {at: unit[term] for at, unit in enumerate(left) if unit[term]}


def test_nothing_is_held_at_first_and_when_all_are_dropped() -> None:
    postings = Postings()
    assert held(postings, 3) == {}
    postings.add(0, [[3, 3], []])
    before = postings.memory
    postings.keep(np.zeros(0, dtype=np.intp))
    assert held(postings, 3) == {}
    assert postings.memory < before


def test_terms_beyond_16_bits_and_many_slots_stay_apart() -> None:
    postings = Postings()
    postings.add(3_000_000_000, [[70_000], [70_001, 70_000]])
    assert held(postings, 70_000) == {3_000_000_000: 1, 3_000_000_001: 1}
    assert held(postings, 70_001) == {3_000_000_001: 1}
