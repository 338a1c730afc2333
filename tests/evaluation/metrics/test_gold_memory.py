"""Measures of a memory against worked examples, scikit-learn and the plain search over all pairings."""

from itertools import permutations

import numpy as np
import pytest
from nltk.metrics.scores import f_measure, precision, recall
from sklearn.metrics import precision_recall_fscore_support

from localmem.errors import BadInput
from localmem.evaluation.metrics.gold_memory import match_sentences, rouge_similarities, shared_words

MEMORIES = ["Ana keeps bees.", "Ben lives in Porto.", "Ana is rich."]
GOLDS = ["Ana keeps bees.", "Ben is living in Porto."]


def test_words_that_a_memory_shares_with_the_gold_one() -> None:
    # ana keeps bees ben lives in porto ana is rich: 10 words; ana keeps bees ben is living in porto: 8; 7 in common
    assert shared_words(MEMORIES, GOLDS) == pytest.approx((7 / 10, 7 / 8, 14 / 18))


def test_shared_words_are_nltk_s_precision_and_recall_where_no_word_comes_twice() -> None:
    memory, gold = ["ana keeps bees", "ben sails"], ["ana keeps two dogs"]
    ours, theirs = ({word for text in texts for word in text.split()} for texts in (memory, gold))
    overlap = shared_words(memory, gold)
    assert overlap == pytest.approx((precision(theirs, ours), recall(theirs, ours), f_measure(theirs, ours)))


def test_sentences_are_paired_one_to_one() -> None:
    # the second memory is like both golds, the first like one alone: both can be paired
    table = np.array([[0.0, 0.9], [0.8, 0.7], [0.1, 0.2]], dtype=np.float32)
    assert match_sentences(table, 0.5) == pytest.approx((2 / 3, 1.0, 4 / 5))
    assert match_sentences(table, 0.85) == pytest.approx((1 / 3, 1 / 2, 2 / 5))
    assert match_sentences(np.zeros((0, 2), dtype=np.float32)) == (0.0, 0.0, 0.0)
    assert match_sentences(np.zeros((0, 0), dtype=np.float32)) == (1.0, 1.0, 1.0)


def test_no_pairing_has_more_pairs() -> None:
    draw = np.random.default_rng(3)
    for _ in range(50):
        table = draw.random((4, 4), dtype=np.float32)
        best = max(
            sum(table[row, column] >= 0.6 for row, column in enumerate(order)) for order in permutations(range(4))
        )
        assert match_sentences(table, 0.6).recall == pytest.approx(best / 4)


def test_equal_sentences_are_scikit_learn_s_precision_and_recall() -> None:
    memory, gold = {"a", "b", "c"}, {"b", "c", "d", "e"}
    table = np.array([[ours == theirs for theirs in sorted(gold)] for ours in sorted(memory)], dtype=np.float32)
    sentences = sorted(memory | gold)
    *expected, _ = precision_recall_fscore_support(
        [sentence in gold for sentence in sentences], [sentence in memory for sentence in sentences], average="binary"
    )
    assert match_sentences(table, 1.0) == pytest.approx(tuple(expected))


def test_sentences_alike_by_their_words() -> None:
    table = rouge_similarities(MEMORIES, GOLDS)
    assert table.shape == (3, 2)
    assert table[0, 0] == 1.0
    assert table[1, 1] == pytest.approx(2 * 4 / (4 + 5))  # ben, live, in, porto
    assert match_sentences(table) == pytest.approx((2 / 3, 1.0, 4 / 5))
    assert match_sentences(table, 1.0) == pytest.approx((1 / 3, 1 / 2, 2 / 5))
    assert rouge_similarities([], GOLDS).shape == (0, 2)


def test_similarities_must_be_a_table() -> None:
    with pytest.raises(BadInput, match=r"the shape \(3,\)"):
        match_sentences(np.zeros(3, dtype=np.float32))
