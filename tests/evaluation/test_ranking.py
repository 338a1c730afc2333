"""Measures of a ranking against values worked out by hand."""

from math import log2

import numpy as np
import pytest
from sklearn.metrics import dcg_score, recall_score

from localmem.evaluation.evidence_retrieval import (
    dcg,
    hit_at,
    recall_at,
    recall_within,
    reciprocal_rank,
    tokens_at,
    units_within,
)

# units of two turns each; the gold turns b, c and x stand in units 1 and 2, and x in none
RANKING = [("a",), ("b", "p"), ("q", "c"), ("r",)]
GOLD = {"b", "c", "x"}


def test_recall_and_hits_grow_with_depth() -> None:
    assert [recall_at(RANKING, GOLD, k) for k in (1, 2, 3, 10)] == pytest.approx([0, 1 / 3, 2 / 3, 2 / 3])
    assert [hit_at(RANKING, GOLD, k) for k in (1, 2, 3)] == [0, 1, 1]


def test_a_gold_id_found_twice_counts_once() -> None:
    assert recall_at([("a",), ("a",)], {"a", "b"}, 2) == 0.5
    assert dcg([("a",), ("a",)], {"a", "b"}, 5) == 0.5


def test_reciprocal_rank() -> None:
    assert reciprocal_rank(RANKING, GOLD) == 0.5
    assert reciprocal_rank(RANKING, {"x"}) == 0
    assert reciprocal_rank([], {"x"}) == 0


def test_dcg_shares_relevance_over_the_gold_turns_and_ranks_turns() -> None:
    # retrieved turns in order: a b p q c r; b is at position 2 and c at 5, each worth a third
    assert dcg(RANKING, GOLD, 50) == pytest.approx((1 / log2(3) + 1 / log2(6)) / 3)
    assert dcg(RANKING, GOLD, 4) == pytest.approx(1 / log2(3) / 3)
    assert dcg([("a",)], {"a"}, 50) == 1


def test_the_same_as_scikit_learn() -> None:
    draw = np.random.default_rng(7)
    for _ in range(20):
        turns = [f"t{number}" for number in draw.permutation(12)]
        gold = set(draw.choice(turns, 4, replace=False))
        relevance = np.array([[0.25 * (turn in gold) for turn in turns]])
        falling = np.arange(12, 0, -1.0)[None, :]
        for depth in (3, 12):
            ours = dcg([(turn,) for turn in turns], gold, depth)
            assert ours == pytest.approx(dcg_score(relevance, falling, k=depth))
            recall = recall_at([(turn,) for turn in turns], gold, depth)
            marked = [number < depth for number in range(12)]
            assert recall == pytest.approx(recall_score([turn in gold for turn in turns], marked))


def test_tokens() -> None:
    sizes = [100, 150, 300, 10]
    assert (tokens_at(sizes, 2), tokens_at(sizes, 9)) == (250, 560)
    # what comes after a unit that does not fit is not shown, however small
    assert [units_within(sizes, budget) for budget in (99, 100, 250, 500, 560)] == [0, 1, 2, 2, 4]
    assert recall_within(RANKING, sizes, GOLD, 250) == pytest.approx(1 / 3)
    assert recall_within(RANKING, sizes, GOLD, 550) == pytest.approx(2 / 3)
    assert recall_within(RANKING, sizes, GOLD, 50) == 0
