"""The contract of a retriever, tested with every kind."""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from localmem.errors import BadInput
from localmem.retrieval.base import Retriever, Scope
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.hybrid import HybridRetriever
from localmem.retrieval.rerank import RerankingRetriever
from localmem.retrieval.views import Indexes, ViewRetriever
from localmem.retrieval.wrappers import RecencyRetriever
from localmem.types import Unit
from tests.fakes import START, WordEncoder, WordRetriever, in_scope, unit

NewRetriever = Callable[[], Retriever]


class WordReranker:
    """Cosines of bags of words."""

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        encoder = WordEncoder()
        return [float(item) for item in encoder.encode(texts, "passage") @ encoder.encode([query], "query")[0]]


KINDS: dict[str, NewRetriever] = {
    "dense": lambda: DenseRetriever(WordEncoder()),
    "dense-hnsw": lambda: DenseRetriever(WordEncoder(), kind="hnsw"),
    "dense-ivf": lambda: DenseRetriever(WordEncoder(), kind="ivf"),
    "dense-single": lambda: DenseRetriever(WordEncoder(), half=False),
    "bm25": BM25Retriever,
    "bm25-plain": lambda: BM25Retriever(language="none"),
    "hybrid": lambda: HybridRetriever([DenseRetriever(WordEncoder()), BM25Retriever()]),
    "recency": lambda: RecencyRetriever(DenseRetriever(WordEncoder()), half_life=30, dates=True),
    "recency-dates": lambda: RecencyRetriever(BM25Retriever(), dates=True),
    "reranked": lambda: RerankingRetriever(DenseRetriever(WordEncoder()), WordReranker()),
    "recency-reranked-hybrid": lambda: RecencyRetriever(
        RerankingRetriever(HybridRetriever([DenseRetriever(WordEncoder()), BM25Retriever()]), WordReranker(), depth=20),
        half_life=7,
        depth=5,
    ),
    "views": lambda: ViewRetriever(Indexes(DenseRetriever(WordEncoder()), BM25Retriever(), None)),
    "hybrid-of-one": lambda: HybridRetriever([BM25Retriever()]),
}
APPROXIMATE = {"hnsw", "ivf"}


@pytest.fixture(params=KINDS)
def new(request: pytest.FixtureRequest) -> NewRetriever:
    return KINDS[request.param]


def ids(retriever: Retriever, query: str, k: int = 10) -> list[str]:
    (matches,) = retriever.search([query], k)
    return [match.id for match in matches]


def test_an_empty_index_finds_nothing(new: NewRetriever) -> None:
    retriever = new()
    assert retriever.search(["a dog", "a cat"], 5) == [[], []]
    assert retriever.search([], 5) == []
    retriever.add([])
    retriever.remove(["nobody"])
    assert ids(retriever, "a dog") == []


def test_the_nearest_key_comes_first(new: NewRetriever) -> None:
    retriever = new()
    retriever.add([unit("a", "rain in Oslo"), unit("b", "brown dog barking"), unit("c", "dog")])
    assert ids(retriever, "brown dog barking")[:2] == ["b", "c"]


def test_the_key_is_searched_and_not_the_text(new: NewRetriever) -> None:
    retriever = new()
    retriever.add([unit("a", "violin", key="trumpet"), unit("b", "trumpet", key="violin")])
    assert ids(retriever, "violin", 1) == ["b"]


def test_scores_fall(new: NewRetriever) -> None:
    retriever = new()
    retriever.add([unit(str(n), "dog " + "cat " * n) for n in range(8)])
    (matches,) = retriever.search(["dog"], 8)
    assert len(matches) == 8
    scores = [match.score for match in matches]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1]


def test_queries_are_answered_in_order(new: NewRetriever) -> None:
    retriever = new()
    retriever.add([unit("a", "piano"), unit("b", "garden")])
    results = retriever.search(["garden", "piano", "garden"], 1)
    assert [[match.id for match in matches] for matches in results] == [["b"], ["a"], ["b"]]


@pytest.mark.parametrize("query", ["", "   \n"])
def test_an_empty_query_matches_nothing_and_affects_no_other(new: NewRetriever, query: str) -> None:
    retriever = new()
    retriever.add([unit("a", "piano")])
    first, second = retriever.search([query, "piano"], 3)
    assert first == []
    assert [match.id for match in second] == ["a"]


def test_k_may_be_larger_than_the_index(new: NewRetriever) -> None:
    retriever = new()
    retriever.add([unit(str(n), "dog") for n in range(3)])
    assert len(ids(retriever, "dog", 1000)) == 3


@pytest.mark.parametrize("k", [0, -1])
def test_a_k_below_one_finds_nothing(new: NewRetriever, k: int) -> None:
    retriever = new()
    retriever.add([unit("a", "dog")])
    assert retriever.search(["dog", "cat"], k) == [[], []]


def test_a_present_unit_is_left_unchanged(new: NewRetriever) -> None:
    retriever = new()
    retriever.add([unit("a", "dog"), unit("a", "cat")])
    retriever.add([unit("a", "cat"), unit("b", "cat")])
    assert ids(retriever, "dog", 1) == ["a"]
    assert ids(retriever, "cat", 1) == ["b"]
    assert ids(retriever, "dog cat", 5).count("a") == 1


def test_a_removed_unit_does_not_match_and_can_be_added_again(new: NewRetriever) -> None:
    retriever = new()
    retriever.add([unit("a", "dog"), unit("b", "dog house")])
    retriever.remove(["a", "a", "nobody"])
    assert ids(retriever, "dog") == ["b"]
    retriever.add([unit("a", "cat")])
    assert ids(retriever, "cat", 1) == ["a"]
    assert ids(retriever, "dog", 1) == ["b"]


def test_all_units_can_be_removed(new: NewRetriever) -> None:
    retriever = new()
    retriever.add([unit("a", "dog"), unit("b", "dog house")])
    retriever.remove(["a", "b"])
    assert ids(retriever, "dog") == []
    retriever.add([unit("c", "dog")])
    assert ids(retriever, "dog") == ["c"]


def test_ties_have_the_order_of_addition(new: NewRetriever) -> None:
    retriever = new()
    names = [f"u{n}" for n in random.Random(0).sample(range(300), 300)]
    retriever.add([unit(name, "the same words") for name in names[:100]])
    retriever.add([unit(name, "the same words") for name in names[100:]])
    assert ids(retriever, "same words", 10) == names[:10]
    assert ids(retriever, "same words", 50) == names[:50]
    retriever.remove(names[:5])
    retriever.add([unit(names[0], "the same words")])
    assert ids(retriever, "same words", 20) == names[5:25]


def test_removal_is_as_if_the_units_had_never_been_there(new: NewRetriever, request: pytest.FixtureRequest) -> None:
    """With enough removals for the index to be compacted on the way."""
    if APPROXIMATE & set(request.node.callspec.id.split("-")):
        pytest.skip("approximate: which of the last matches it misses depends on its history")
    rng = random.Random(3)
    words = [f"word{n}" for n in range(40)]
    units = [unit(f"u{n}", " ".join(rng.choices(words, k=6))) for n in range(4000)]
    retriever = new()
    live: dict[str, Unit] = {}
    for start in range(0, 4000, 400):
        retriever.add(units[start : start + 400])
        live |= {item.id: item for item in units[start : start + 400]}
        removed = rng.sample(sorted(live), 300)
        retriever.remove(removed)
        for name in removed:
            del live[name]
    fresh = new()
    fresh.add(list(live.values()))
    queries = [" ".join(rng.choices(words, k=3)) for _ in range(20)]
    results, expected = retriever.search(queries, 7), fresh.search(queries, 7)
    assert [[match.id for match in matches] for matches in results] == [
        [match.id for match in matches] for matches in expected
    ]
    for matches, others in zip(results, expected, strict=True):
        assert [match.score for match in matches] == pytest.approx([match.score for match in others], abs=1e-6)


SCOPES = [
    Scope(),
    Scope(speaker="Anna"),
    Scope(speaker="nobody"),
    Scope(speaker=""),
    Scope(since=START + timedelta(days=40)),
    Scope(until=START + timedelta(days=7)),
    Scope(speaker="Tom", since=START + timedelta(days=3), until=START + timedelta(days=60)),
    Scope(since=START + timedelta(days=9), until=START + timedelta(days=9)),
    Scope(since=START + timedelta(days=9), until=START),
    Scope(now=START + timedelta(days=50)),
    Scope(speaker="Anna", now=START - timedelta(days=5)),
]


def random_units(count: int) -> list[Unit]:
    """Units of three speakers over a hundred days, with ties among them."""
    rng = random.Random(11)
    words = [f"word{n}" for n in range(30)]
    return [
        replace(
            unit(
                f"u{n}",
                " ".join(rng.choices(words, k=5)) if n % 5 else "word1 word2",
                time=START + timedelta(days=n % 100),
            ),
            speaker=rng.choice(["Anna", "Tom", ""]),
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_a_scope_gives_the_results_of_an_index_of_its_units(
    new: NewRetriever, scope: Scope, request: pytest.FixtureRequest
) -> None:
    """After removals too. Kinds that are approximate are exact in a scope that admits few."""
    units = random_units(300)
    approximate = APPROXIMATE & set(request.node.callspec.id.split("-"))
    retriever, alone = new(), KINDS["dense"]() if approximate else new()
    retriever.add(units[:250])
    retriever.remove([item.id for item in units[:250:7]])
    retriever.add(units[250:])
    remaining = [item for at, item in enumerate(units) if at % 7 or at >= 250]
    alone.add([item for item in remaining if in_scope(item, scope)])
    queries = ["word1 word2", "word3 word4 word5", "word29", "", "nothing of it"]
    for k in (1, 9, 1000):
        results, expected = (
            retriever.search(queries, k, scope),
            alone.search(queries, k, replace(scope, speaker=None, since=None, until=None)),
        )
        for matches, others in zip(results, expected, strict=True):
            assert [match.id for match in matches] == [match.id for match in others]
            assert [match.score for match in matches] == pytest.approx([match.score for match in others], abs=1e-6)


def test_bounds_of_time_are_within_and_compare_across_zones(new: NewRetriever) -> None:
    from datetime import timezone

    tokyo = timezone(timedelta(hours=9))
    retriever = new()
    retriever.add([unit(str(n), f"dog number{n}", time=START + timedelta(hours=n)) for n in range(5)])
    scope = Scope(since=(START + timedelta(hours=1)).astimezone(tokyo), until=START + timedelta(hours=3))
    (matches,) = retriever.search(["dog"], 9, scope)
    assert sorted(match.id for match in matches) == ["1", "2", "3"]


def test_naive_times_raise(new: NewRetriever) -> None:
    retriever = new()
    naive = datetime(2026, 3, 2)  # noqa: DTZ001  # what is tested
    with pytest.raises(BadInput, match="unit 'b' is 2026-03-02T00:00:00, which has no UTC offset"):
        retriever.add([unit("a", "dog"), unit("b", "dog", time=naive)])
    assert ids(retriever, "dog") == []
    retriever.add([unit("a", "dog"), unit("b", "dog", time=naive.replace(tzinfo=UTC))])
    assert sorted(ids(retriever, "dog")) == ["a", "b"]
    with pytest.raises(BadInput, match="the search's since is 2026-03-02T00:00:00"):
        Scope(since=naive)
    with pytest.raises(BadInput, match="the search's until"):
        Scope(until=naive)
    with pytest.raises(BadInput, match="the search's now"):
        Scope(now=naive)


def test_memory_grows_with_the_units(new: NewRetriever) -> None:
    retriever = new()
    empty = retriever.memory
    retriever.add(random_units(300))
    full = retriever.memory
    assert 0 <= empty < full
    assert full > 300 * 50
    assert isinstance(full, int)


@pytest.mark.parametrize(
    "key", ["고양이가 집에 있어요", "猫が好きです", "🐱 🎹", "café", "Привет мир", "مرحبا بالعالم", "สวัสดี"]
)
def test_any_script_is_found(new: NewRetriever, key: str) -> None:
    retriever = new()
    retriever.add([unit("a", "nothing of the kind"), unit("b", key), unit("c", "something else")])
    assert ids(retriever, key, 1) == ["b"]


def test_searches_while_another_thread_adds_and_removes(new: NewRetriever) -> None:
    retriever = new()
    retriever.add([unit("first", "dog zero")])
    batches = [[unit(f"{n}.{m}", f"dog number{m} batch{n}") for m in range(20)] for n in range(40)]
    finished = threading.Event()
    problems: list[object] = []

    def look() -> None:
        while not finished.is_set():
            results = retriever.search(["dog zero", "dog number3"], 5)
            if results[0][0].id != "first" or any(len(set(matches)) != len(matches) for matches in results):
                problems.append(results)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for batch in batches:
        retriever.add(batch)
        retriever.remove([item.id for item in batch[::2]])
    finished.set()
    for thread in threads:
        thread.join()
    assert not problems
    assert len(ids(retriever, "dog", 10_000)) == 1 + 40 * 10


def test_the_same_units_added_by_two_threads_are_there_once(new: NewRetriever) -> None:
    retriever = new()
    units = [unit(str(n), f"dog number{n}") for n in range(200)]
    start = threading.Barrier(2)

    def add() -> None:
        start.wait()
        for at in range(0, 200, 10):
            retriever.add(units[at : at + 10])

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = ids(retriever, "dog", 1000)
    assert sorted(results) == sorted(item.id for item in units)


def test_the_fake_of_unit_tests_keeps_the_contract_where_they_lean_on_it() -> None:
    fake = WordRetriever()
    fake.add([unit("a", "dog"), unit("b", "dog house")])
    fake.remove(["a"])
    assert ids(fake, "dog") == ["b"]
