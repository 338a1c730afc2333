"""DenseRetriever against brute force, with valid and invalid vectors."""

import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem.errors import BadSettings, BadVectors
from localmem.retrieval import dense, row_index
from localmem.retrieval.base import Match, Scope, Side
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.encoder import SentenceEncoder
from tests.fakes import START, WordEncoder, unit

Rows = NDArray[np.float32]


class TableEncoder:
    """Texts are row numbers of a table."""

    identity = "table"

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.dimension = rows.shape[1]

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        return self.rows[[int(text) for text in texts]]


def unit_rows(rng: np.random.Generator, count: int, dimension: int = 48) -> Rows:
    rows = rng.standard_normal((count, dimension), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def brute_force(rows: Rows, query: Rows, k: int) -> list[tuple[str, float]]:
    scores = (rows.astype(np.float64) * query.astype(np.float64)).sum(axis=1)
    order = np.argsort(-scores, kind="stable")[:k]
    return [(str(at), float(scores[at])) for at in order]


def assert_same_matches(results: Sequence[Sequence[Match]], expected: Sequence[Sequence[tuple[str, float]]]) -> None:
    """The first difference alone: pytest would compare thousands of lines for minutes."""
    assert [len(matches) for matches in results] == [len(matches) for matches in expected]
    pairs = (
        (query, place, match, truth)
        for query, (matches, truths) in enumerate(zip(results, expected, strict=True))
        for place, (match, truth) in enumerate(zip(matches, truths, strict=True))
    )
    assert next((pair for pair in pairs if pair[2] != pair[3]), None) is None


def assert_equals_brute_force(rows: Rows, queries: Rows, k: int) -> None:
    count = len(rows)
    retriever = DenseRetriever(TableEncoder(np.concatenate([rows, queries])))
    for start in range(0, count, 700):
        retriever.add([unit(str(n)) for n in range(start, min(start + 700, count))])
    results = retriever.search([str(count + n) for n in range(len(queries))], k)
    assert_same_matches(results, [brute_force(rows, query, k) for query in queries])


@pytest.mark.parametrize("k", [1, 10, 300, 5000])
def test_flat_equals_brute_force(k: int) -> None:
    rng = np.random.default_rng(k)
    assert_equals_brute_force(unit_rows(rng, 2500), unit_rows(rng, 30), k)


def test_flat_equals_brute_force_where_half_precision_sees_no_difference() -> None:
    rng = np.random.default_rng(1)
    rows = unit_rows(rng, 1)[[0] * 1500] + rng.standard_normal((1500, 48), dtype=np.float32) * 2e-6
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert_equals_brute_force(rows, np.concatenate([rows[:3], unit_rows(rng, 3)]), 10)


@pytest.mark.parametrize("k", [1, 10, 99, 101, 700])
def test_flat_equals_brute_force_with_many_ties(k: int) -> None:
    rng = np.random.default_rng(k)
    few = unit_rows(rng, 7)
    rows = few[rng.integers(0, 7, 1001)]
    assert_equals_brute_force(rows, np.concatenate([few, unit_rows(rng, 3)]), k)


def test_flat_equals_brute_force_on_real_vectors(starter_encoder_dir: Path) -> None:
    encoder = SentenceEncoder(starter_encoder_dir, name="minilm")
    who, what = (
        ["Anna", "Tom", "my sister", "the boss"],
        ["plays the violin", "moved to Rome", "hates rain", "has a dog"],
    )
    keys = [
        f"{person} {other} {when}." for person in who for other in what for when in ("today", "in May", "last year")
    ]
    keys += keys[:20]
    rows, queries = encoder.encode(keys, "passage"), encoder.encode(["music", "Who has a pet?", keys[3]], "query")
    assert_equals_brute_force(rows, queries, 10)
    retriever = DenseRetriever(encoder)
    retriever.add([unit(str(n), key) for n, key in enumerate(keys)])
    (matches,) = retriever.search(["Who has a pet?"], 3)
    assert ["dog" in keys[int(match.id)] for match in matches] == [True] * 3


def test_removed_rows_leave_the_best_of_the_others() -> None:
    """Even when all that FAISS proposes at first is dead."""
    rng = np.random.default_rng(5)
    rows, query = unit_rows(rng, 2000), unit_rows(rng, 1)
    best = [name for name, _ in brute_force(rows, query[0], 500)]
    retriever = DenseRetriever(TableEncoder(np.concatenate([rows, query])))
    retriever.add([unit(str(n)) for n in range(2000)])
    retriever.remove(best[:480])
    (matches,) = retriever.search(["2000"], 20)
    assert [match.id for match in matches] == best[480:500]


def test_scores_are_cosines() -> None:
    retriever = DenseRetriever(WordEncoder())
    retriever.add([unit("a", "dog"), unit("b", "dog cat")])
    (matches,) = retriever.search(["dog"], 2)
    assert [match.score for match in matches] == pytest.approx([1.0, 0.5**0.5], abs=1e-6)


def test_units_that_are_there_are_not_encoded_again() -> None:
    encoder = WordEncoder()
    retriever = DenseRetriever(encoder)
    retriever.add([unit("a", "dog")])
    retriever.add([unit("a", "dog"), unit("b", "cat"), unit("b", "cow")])
    assert encoder.encoded == ["dog", "cat"]


def test_an_index_that_is_empty_asks_the_encoder_nothing() -> None:
    encoder = WordEncoder()
    DenseRetriever(encoder).search(["dog"], 3)
    assert encoder.encoded == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3.0])
def test_invalid_vectors_raise(bad: float) -> None:
    rows = unit_rows(np.random.default_rng(0), 4)
    rows[2, 5] = bad
    retriever = DenseRetriever(TableEncoder(rows))
    retriever.add([unit("0"), unit("1")])
    with pytest.raises(BadVectors, match="table returned 1 of 2 vectors"):
        retriever.add([unit("3"), unit("2")])
    with pytest.raises(BadVectors, match="table"):
        retriever.search(["2"], 1)
    (matches,) = retriever.search(["3"], 9)
    assert {match.id for match in matches} == {"0", "1"}


def test_an_unknown_kind_raises() -> None:
    with pytest.raises(BadSettings, match="'tree'"):
        DenseRetriever(WordEncoder(), kind="tree")  # type: ignore[arg-type]


def test_the_graph_takes_over_past_the_limit_and_finds_nearly_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "EXACT_UNTIL", 2000)
    built: list[int] = []
    make = row_index._graph

    def spy(rows: Rows, half: bool) -> object:
        built.append(len(rows))
        return make(rows, half)

    monkeypatch.setattr(row_index, "_graph", spy)
    rng = np.random.default_rng(2)
    rows = clustered_rows(rng, 3050)
    retriever = DenseRetriever(TableEncoder(rows))
    retriever.add([unit(str(n)) for n in range(2000)])
    assert built == []
    retriever.add([unit(str(n)) for n in range(2000, 2500)])
    dense.wait_for_builds()
    retriever.add([unit(str(n)) for n in range(2500, 3000)])
    dense.wait_for_builds()
    assert built == [2500]
    results = retriever.search([str(n) for n in range(3000, 3050)], 10)
    hits = sum(
        len({match.id for match in matches} & {name for name, _ in brute_force(rows[:3000], rows[3000 + n], 10)})
        for n, matches in enumerate(results)
    )
    assert hits >= 0.95 * 500


def clustered_rows(rng: np.random.Generator, count: int) -> Rows:
    centres = unit_rows(rng, 60)
    rows = centres[rng.integers(0, 60, count)] + 0.1 * rng.standard_normal((count, 48), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
@pytest.mark.parametrize("scanned", [0, 10_000])
def test_approximate_indexes_find_nearly_all_in_any_scope(
    kind: dense.Kind, scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where few are admitted all of them are looked at, and where that is too many the search goes further."""
    monkeypatch.setattr(row_index, "_SCANNED", scanned)
    rows = clustered_rows(np.random.default_rng(6), 4050)
    retriever = DenseRetriever(TableEncoder(rows), kind=kind)
    retriever.add([unit(str(n), time=START + timedelta(minutes=n)) for n in range(4000)])
    queries = [str(n) for n in range(4000, 4050)]
    for first in (0, 2000, 3600):
        results = retriever.search(queries, 10, Scope(since=START + timedelta(minutes=first)))
        exact = [brute_force(rows[first:4000], rows[4000 + n], 10) for n in range(50)]
        hits = sum(
            len({int(match.id) for match in matches} & {int(name) + first for name, _ in best})
            for matches, best in zip(results, exact, strict=True)
        )
        assert all(len(matches) == 10 and int(match.id) >= first for matches in results for match in matches)
        assert hits == 500 if scanned and first else hits >= 0.95 * 500


def test_outgrown_lists_are_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    make = row_index._lists

    def spy(rows: Rows, half: bool) -> object:
        built.append(len(rows))
        return make(rows, half)

    monkeypatch.setattr(row_index, "_lists", spy)
    retriever = DenseRetriever(TableEncoder(clustered_rows(np.random.default_rng(7), 2000)), kind="ivf")
    for start in range(0, 2000, 100):
        retriever.add([unit(str(n)) for n in range(start, start + 100)])
    assert built == [100, 500]
    (matches,) = retriever.search(["1999"], 1)
    assert matches[0].id == "1999"


def test_searches_go_on_while_the_graph_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    building, searched = threading.Event(), threading.Event()
    make = row_index._graph

    def slow(rows: Rows, half: bool) -> object:
        building.set()
        assert searched.wait(30)
        return make(rows, half)

    monkeypatch.setattr(row_index, "_graph", slow)
    retriever = DenseRetriever(WordEncoder(), kind="hnsw")
    adding = threading.Thread(target=retriever.add, args=([unit("a", "dog"), unit("b", "cat")],))
    adding.start()
    assert building.wait(30)
    during = retriever.search(["dog"], 1)
    searched.set()
    adding.join()
    assert during == retriever.search(["dog"], 1)
    assert during[0][0].id == "a"


def test_additions_do_not_wait_for_the_graph_that_auto_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "EXACT_UNTIL", 2)
    building, proceed = threading.Event(), threading.Event()
    make = row_index._graph

    def slow(rows: Rows, half: bool) -> object:
        building.set()
        assert proceed.wait(30)
        return make(rows, half)

    monkeypatch.setattr(row_index, "_graph", slow)
    retriever = DenseRetriever(WordEncoder())
    retriever.add([unit("a", "dog"), unit("b", "cat"), unit("c", "cow")])
    assert building.wait(30)
    retriever.add([unit("d", "hen"), unit("e", "pig")])
    retriever.remove(["b"])
    assert [match.id for match in retriever.search(["hen"], 1)[0]] == ["d"]
    before = retriever._index
    proceed.set()
    dense.wait_for_builds()
    assert (before and before.kind, retriever._index and retriever._index.kind) == ("flat", "hnsw")
    results = retriever.search(["dog", "hen", "pig"], 1)
    assert [matches[0].id for matches in results] == ["a", "d", "e"]
    assert len(retriever.search(["dog"], 9)[0]) == 4


def test_a_graph_over_rows_that_have_moved_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    make = row_index._graph
    retriever = DenseRetriever(TableEncoder(unit_rows(np.random.default_rng(4), 2001)), kind="hnsw")

    def remove_and_build(rows: Rows, half: bool) -> object:
        retriever.remove([str(n) for n in range(1500)])
        return make(rows, half)

    monkeypatch.setattr(row_index, "_graph", remove_and_build)
    retriever.add([unit(str(n)) for n in range(2000)])
    (before,) = retriever.search(["1700"], 1)
    monkeypatch.setattr(row_index, "_graph", make)
    retriever.add([unit("2000")])
    results = retriever.search(["1700", "2000"], 1)
    assert [before[0].id, results[0][0].id, results[1][0].id] == ["1700", "1700", "2000"]


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_the_rows_of_removed_units_are_freed(kind: dense.Kind) -> None:
    retriever = DenseRetriever(WordEncoder(), kind=kind)
    for n in range(20):
        retriever.add([unit(f"{n}.{m}", f"word{m}") for m in range(200)])
        retriever.remove([f"{n}.{m}" for m in range(200)])
    assert len(retriever._vectors) < 2000
    assert retriever.search(["word1"], 5) == [[]]
