"""HybridRetriever: the arithmetic of the fusion, and searches side by side."""

from collections.abc import Callable, Sequence
from threading import Event

import pytest

from localmem.errors import BadSettings, BadVectors
from localmem.llm.wrappers import in_background, is_background
from localmem.retrieval.base import Match, Scope
from localmem.retrieval.hybrid import HybridRetriever
from localmem.types import Unit
from tests.fakes import unit


class Fixed:
    """Finds the same units whatever is asked."""

    def __init__(self, *names: str, fails: int = 0) -> None:
        self.names = names
        self.fails = fails
        self.depths: list[int] = []
        self.added: list[str] = []

    def add(self, units: Sequence[Unit]) -> None:
        if self.fails:
            self.fails -= 1
            raise BadVectors("not now")
        self.added += [item.id for item in units]

    def remove(self, ids: Sequence[str]) -> None:
        self.added = [name for name in self.added if name not in ids]

    memory = 1

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        self.depths.append(k)
        return [[Match(name, 0.5) for name in self.names[:k]] for _ in queries]


def with_units(retriever: HybridRetriever, names: str) -> HybridRetriever:
    retriever.add([unit(name) for name in names])
    return retriever


def test_scores_are_sums_of_reciprocal_ranks() -> None:
    retriever = with_units(HybridRetriever([Fixed("a", "b", "c"), Fixed("c", "d")]), "abcd")
    (matches,) = retriever.search(["x"], 10)
    assert [match.id for match in matches] == ["c", "a", "b", "d"]
    assert [match.score for match in matches] == pytest.approx([1 / 63 + 1 / 61, 1 / 61, 1 / 62, 1 / 62])


def test_weights_and_constant() -> None:
    parts = [Fixed("a", "b"), Fixed("b", "a")]
    (matches,) = with_units(HybridRetriever(parts, weights=[1, 3], constant=1), "ab").search(["x"], 1)
    assert [match.id for match in matches] == ["b"]
    assert matches[0].score == pytest.approx(1 / 3 + 3 / 2)


def test_ties_have_the_order_of_addition() -> None:
    retriever = with_units(HybridRetriever([Fixed("c", "b", "a"), Fixed("a", "b", "c"), Fixed("b")]), "cab")
    (matches,) = retriever.search(["x"], 3)
    assert [match.id for match in matches] == ["b", "c", "a"]
    assert matches[1].score == matches[2].score
    retriever.remove(["c"])
    retriever.add([unit("c")])
    (matches,) = retriever.search(["x"], 3)
    assert [match.id for match in matches] == ["b", "a", "c"]


def test_the_same_ranks_in_another_order_are_a_tie() -> None:
    """1/61 + 1/62 + 1/67 and 1/67 + 1/61 + 1/62 differ when they are summed naively."""
    parts = [Fixed(*"xpqrsty"), Fixed(*"yx"), Fixed(*"pyqrstx")]
    retriever = with_units(HybridRetriever(parts), "yxpqrst")
    (matches,) = retriever.search(["x"], 10)
    scores = {match.id: match.score for match in matches}
    assert scores["x"] == scores["y"]


def test_each_retriever_is_searched_to_the_depth() -> None:
    part = Fixed("a")
    retriever = HybridRetriever([part], depth=20)
    retriever.search(["x"], 5)
    retriever.search(["x"], 30)
    retriever.search(["x"], 0)
    assert part.depths == [20, 30]


class Doing(Fixed):
    """Does something whenever it searches."""

    def __init__(self, do: Callable[[], object]) -> None:
        super().__init__("a")
        self.do = do

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        self.do()
        return super().search(queries, k, scope)


def _fail() -> None:
    raise BadVectors("no vectors today")


def test_the_others_search_while_the_first_one_waits() -> None:
    called = Event()
    waited: list[bool] = []
    parts = [Doing(lambda: waited.append(called.wait(30))), Doing(called.set)]
    with_units(HybridRetriever(parts), "a").search(["x"], 1)
    assert waited == [True]


@pytest.mark.parametrize("parts", [[Doing(_fail), Fixed("a")], [Fixed("a"), Doing(_fail)]], ids=["first", "other"])
def test_an_error_of_either_is_the_caller_s(parts: list[Fixed]) -> None:
    with pytest.raises(BadVectors, match="today"):
        with_units(HybridRetriever(parts), "a").search(["x"], 1)


def test_all_retrievers_search_in_the_background_with_their_caller() -> None:
    flags: list[bool] = []
    retriever = with_units(HybridRetriever([Doing(lambda: flags.append(is_background())) for _ in range(3)]), "a")
    retriever.search(["x"], 1)
    with in_background():
        retriever.search(["x"], 1)
    assert flags == [False] * 3 + [True] * 3


def test_an_addition_that_failed_can_be_repeated() -> None:
    first, second = Fixed("a"), Fixed("a", fails=1)
    retriever = HybridRetriever([first, second])
    with pytest.raises(BadVectors):
        retriever.add([unit("a")])
    retriever.add([unit("a")])
    assert second.added == ["a"]


@pytest.mark.parametrize(("count", "weights"), [(0, None), (2, [1.0]), (2, [1.0, 0.0]), (1, [-1.0])])
def test_invalid_weights_raise(count: int, weights: list[float] | None) -> None:
    with pytest.raises(BadSettings, match="positive weight"):
        HybridRetriever([Fixed() for _ in range(count)], weights=weights)
