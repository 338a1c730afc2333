"""Compression measured by hand: cosines of a few vectors, recall over a few words, and a control beside them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem.evaluation.compression import Keys, Searched, compared, compressed, kept, nearness, plain, similarity
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.episodes import Dataset
from localmem.evaluation.evidence_retrieval import Measuring, Run, joined, measure
from localmem.evaluation.unit_builders import turns_of
from localmem.retrieval.base import Side
from localmem.retrieval.bm25 import BM25Retriever
from tests.evaluation.fixtures import LOCOMO, written

WORDS = ("bird", "parrot", "soup", "lisbon")


class Words:
    """A dimension a word, in texts of unit length; a bird is a parrot, in part."""

    identity, dimension = "words", len(WORDS)

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        rows = np.array([[word in text.lower() for word in WORDS] for text in texts], dtype=np.float32)
        rows[:, 1] += 0.75 * rows[:, 0]
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        found: NDArray[np.float32] = rows / np.where(lengths == 0, 1, lengths)
        return found


class Drops:
    """Leaves out these words, whatever the rate; a text that is nothing else would go."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def compress(self, texts: Sequence[str], rate: float) -> list[str]:
        return [" ".join(word for word in text.split() if word.strip(".") not in self._words) for text in texts]


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return read_dataset("locomo", written(tmp_path, LOCOMO))


def _count(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def _searched(data: Dataset, keys: Keys) -> Searched:
    run = Run("bm25", keys.of, BM25Retriever)
    result = joined(measure(run, data, Measuring("turns", "question", 5, _count)))
    return Searched(keys, kept(keys, plain(data, turns_of), _count), "bm25", result)


def test_cosines_to_related_and_unrelated_keys(data: Dataset) -> None:
    keys = plain(data, turns_of)
    bird, both, moved = nearness(data, keys, Words())
    # the question is (1, 3/4) of length 5/4, its evidence the parrot alone: 3/5; no other turn shares a word
    assert bird == pytest.approx((0.6, 0))
    assert both == pytest.approx((0.5, 0))  # the soup is near (1), Lisbon is not named (0)
    assert moved == pytest.approx((0, 0))
    less = compressed(keys, "drops", Drops("parrot"), 0.9)
    assert nearness(data, less, Words())[0] == pytest.approx((0, 0))
    found = similarity(less, nearness(data, less, Words()), nearness(data, keys, Words()), (0, 200))
    assert found["related"]["mean"] == pytest.approx(0.5 / 3, abs=1e-4)  # type: ignore[index]  # an estimate
    assert found["related_change"]["mean"] == pytest.approx(-0.2, abs=1e-4)  # type: ignore[index]  # an estimate
    assert found["gap_change"]["mean"] == pytest.approx(-0.2, abs=1e-4)  # type: ignore[index]  # an estimate
    assert "related_change" not in similarity(keys, [bird], [bird], (0, 200))


def test_what_is_kept_and_what_is_found(data: Dataset) -> None:
    keys = plain(data, turns_of)
    words = sum(_count([turn.text for session in data.episodes[0].sessions for turn in session.turns]))
    less = compressed(keys, "drops", Drops("soup)"), 0.9)
    control = compressed(keys, "random", Drops("Lisbon"), 0.9)
    found = [_searched(data, one) for one in (keys, less, control)]
    assert [one.kept for one in found] == pytest.approx([1, (words - 1) / words, (words - 1) / words])
    assert [sum(one.values("recall@5")) for one in found] == pytest.approx([1.5, 1.0, 1.5])
    rows = compared(found, "random", ["recall@5"], (0, 200))
    assert {row["what"]: row["mean"] for row in rows} == {
        "drops - none": pytest.approx(-0.5 / 3, abs=1e-4),
        "drops - random": pytest.approx(-0.5 / 3, abs=1e-4),
        "random - none": 0,
    }


def test_a_key_of_nothing_stays_as_it_was(data: Dataset) -> None:
    everything = Drops("Look", "at", "this", "(shares", "an", "image:", "a", "bowl", "of", "soup)")
    (units,) = compressed(plain(data, turns_of), "drops", everything, 0.5).units.values()
    assert units[2].key.startswith("Look at this")
