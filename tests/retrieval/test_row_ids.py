"""RowIds: rows, scopes and compaction; the best of many scores."""

import numpy as np

from localmem.retrieval.row_ids import RowIds, top_candidates, top_k
from tests.fakes import unit


def test_positions_follow_the_order_of_addition_and_survive_compaction() -> None:
    rows = RowIds()
    rows.add([unit(f"a{n}") for n in range(1500)])
    assert rows.remove(["a0", "a0", "nobody"]) == 1
    rows.add([unit("a0"), unit("b")])
    assert (len(rows), rows.live_count) == (1502, 1501)
    assert rows.new_indices(["b", "c", "a7", "c"]) == [1]
    alive = rows.compact()
    assert list(alive) == [n for n in range(1502) if n != 0]
    assert [rows.ids[at] for at in (0, 1498, 1499, 1500)] == ["a1", "a1499", "a0", "b"]
    assert (len(rows), rows.live_count) == (1501, 1501)
    assert rows.alive.all()


def test_dead_positions_stay_few() -> None:
    rows = RowIds()
    most = 0
    for n in range(200):
        rows.add([unit(f"{n}.{m}") for m in range(100)])
        rows.remove([f"{n}.{m}" for m in range(95)])
        if rows.needs_compaction:
            rows.compact()
        most = max(most, len(rows) - rows.live_count)
    assert rows.live_count == 1000
    assert 900 < most <= 1100
    assert rows.alive.sum() == 1000


def test_top_k_cuts_at_k_with_ties_by_slot() -> None:
    scores, rows = np.array([1.0, 3.0, 2.0, 3.0, 2.0]), np.array([9, 8, 4, 3, 1])
    assert list(top_k(scores, rows, 2)) == [3, 1]
    assert list(top_k(scores, rows, 3)) == [3, 1, 4]
    assert list(top_k(scores, rows, 99)) == [3, 1, 4, 2, 0]


def test_top_candidates_contain_the_best_with_their_ties_and_few_others() -> None:
    rng = np.random.default_rng(4)
    for size, k in [(5000, 10), (4096, 3), (321, 10), (40, 10), (0, 5)]:
        scores = rng.integers(0, 60, size) / 7
        candidates = top_candidates(scores, k)
        assert list(candidates) == sorted(set(candidates.tolist()))
        assert set(np.argsort(-scores, kind="stable")[:k].tolist()) <= set(candidates.tolist())
        if size > k:
            bar = np.sort(scores)[-k]
            assert set(np.flatnonzero(scores >= bar).tolist()) <= set(candidates.tolist())
    assert len(top_candidates(rng.random(100_000), 50)) < 150
