"""Key compression checked by hand: cosines of a few vectors, recall over a few words, and a control compressor."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.episodes import Dataset
from localmem.evaluation.evidence_retrieval import (
    MeasureOptions,
    RetrievalMethod,
    build_turns,
    measure_retrieval,
    merge_results,
)
from localmem.experiments.key_compression import (
    KeySearch,
    KeySet,
    compressed_keys,
    cosine_figures,
    difference_figures,
    kept_share,
    question_cosines,
    uncompressed_keys,
)
from localmem.retrieval.base import Side
from localmem.retrieval.bm25 import BM25Retriever
from tests.evaluation.fixtures import LOCOMO, write_records

VOCABULARY = ("bird", "parrot", "soup", "lisbon")


class VocabularyEncoder:
    """One dimension for each word, in texts of unit length; a bird is partly a parrot."""

    identity, dimension = "words", len(VOCABULARY)

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        rows = np.array([[word in text.lower() for word in VOCABULARY] for text in texts], dtype=np.float32)
        rows[:, 1] += 0.75 * rows[:, 0]
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        vectors: NDArray[np.float32] = rows / np.where(lengths == 0, 1, lengths)
        return vectors


class WordDrop:
    """Drops these words at any rate; a text of nothing else becomes empty."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def compress(self, texts: Sequence[str], rate: float) -> list[str]:
        return [" ".join(word for word in text.split() if word.strip(".") not in self._words) for text in texts]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return read_dataset("locomo", write_records(tmp_path, LOCOMO))


def count_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def search(dataset: Dataset, keys: KeySet) -> KeySearch:
    method = RetrievalMethod("bm25", keys.of, BM25Retriever)
    options = MeasureOptions("turns", "question", 5, count_words)
    result = merge_results(measure_retrieval(method, dataset, options))
    return KeySearch(keys, kept_share(keys, uncompressed_keys(dataset, build_turns), count_words), "bm25", result)


def test_cosines_to_related_and_unrelated_keys(dataset: Dataset) -> None:
    keys = uncompressed_keys(dataset, build_turns)
    bird, both, moved = question_cosines(dataset, keys, VocabularyEncoder())
    # the question is (1, 3/4) of length 5/4, its evidence the parrot alone: 3/5; no other turn shares a word
    assert bird[1:] == pytest.approx((0.6, 0))
    assert both[1:] == pytest.approx((0.5, 0))  # the soup is near (1), Lisbon is not named (0)
    assert moved[1:] == pytest.approx((0, 0))
    compressed = compressed_keys(keys, "drop", WordDrop("parrot"), 0.9)
    cosines = question_cosines(dataset, compressed, VocabularyEncoder())
    assert cosines[0][1:] == pytest.approx((0, 0))
    figures = cosine_figures(compressed, cosines, [bird, both, moved])
    assert figures["related"]["mean"] == pytest.approx(0.5 / 3, abs=1e-4)
    assert figures["related_change"]["mean"] == pytest.approx(-0.2, abs=1e-4)
    assert figures["gap_change"]["mean"] == pytest.approx(-0.2, abs=1e-4)
    assert "related_change" not in cosine_figures(keys, [bird], [bird])


def test_kept_tokens_and_recall(dataset: Dataset) -> None:
    keys = uncompressed_keys(dataset, build_turns)
    words = sum(count_words([turn.text for session in dataset.episodes[0].sessions for turn in session.turns]))
    compressed = compressed_keys(keys, "drop", WordDrop("soup)"), 0.9)
    control = compressed_keys(keys, "random", WordDrop("Lisbon"), 0.9)
    searches = [search(dataset, key_set) for key_set in (keys, compressed, control)]
    assert [each.kept for each in searches] == pytest.approx([1, (words - 1) / words, (words - 1) / words])
    assert [sum(each.values("recall@5")) for each in searches] == pytest.approx([1.5, 1.0, 1.5])
    rows = difference_figures(searches, "random", ["recall@5"])
    assert {row["what"]: row["mean"] for row in rows} == {
        "drop - none": pytest.approx(-0.5 / 3, abs=1e-4),
        "drop - random": pytest.approx(-0.5 / 3, abs=1e-4),
        "random - none": 0,
    }


def test_a_key_that_would_become_empty_is_unchanged(dataset: Dataset) -> None:
    everything = WordDrop("Look", "at", "this", "(shares", "an", "image:", "a", "bowl", "of", "soup)")
    (units,) = compressed_keys(uncompressed_keys(dataset, build_turns), "drop", everything, 0.5).units.values()
    assert units[2].key.startswith("Look at this")
