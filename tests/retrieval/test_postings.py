"""Postings: look-ups give the entries of one table, whatever the order and the sizes of the additions."""

import random
from collections import Counter

import numpy as np

from localmem.retrieval.postings import Postings


def counts_of(postings: Postings, term: int) -> dict[int, int]:
    entries = postings.lookup([41_000, term])
    assert (entries.spread(np.arange(2)) == 1).all()
    assert entries.sizes.sum() == len(entries.rows) == len(set(entries.rows.tolist()))
    return dict(zip(entries.rows.tolist(), entries.counts.tolist(), strict=True))


def test_entries_are_complete_after_many_additions_and_dropped_rows() -> None:
    rng = random.Random(5)
    postings, units = Postings(), list[Counter[int]]()
    for size in [300, *(rng.randint(1, 30) for _ in range(60)), 0]:
        new = [[rng.randint(0, 40) for _ in range(rng.randint(0, 9))] for _ in range(size)]
        postings.add(len(units), new)
        units += map(Counter, new)
    assert len(postings._runs) < 8
    for term in range(42):
        assert counts_of(postings, term) == {at: unit[term] for at, unit in enumerate(units) if unit[term]}
    selected = np.array(sorted(rng.sample(range(len(units)), 100)))
    postings.select(selected)
    postings.add(100, [[7, 7, 3]])
    remaining = [*(units[at] for at in selected), Counter([7, 7, 3])]
    for term in range(42):
        assert counts_of(postings, term) == {at: unit[term] for at, unit in enumerate(remaining) if unit[term]}


def test_postings_are_empty_at_first_and_after_dropping_all_rows() -> None:
    postings = Postings()
    assert counts_of(postings, 3) == {}
    postings.add(0, [[3, 3], []])
    memory = postings.memory
    postings.select(np.zeros(0, dtype=np.intp))
    assert counts_of(postings, 3) == {}
    assert postings.memory < memory


def test_terms_beyond_16_bits_and_many_slots_stay_apart() -> None:
    postings = Postings()
    postings.add(3_000_000_000, [[70_000], [70_001, 70_000]])
    assert counts_of(postings, 70_000) == {3_000_000_000: 1, 3_000_000_001: 1}
    assert counts_of(postings, 70_001) == {3_000_000_001: 1}
