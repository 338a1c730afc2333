"""An index that reads units together with those before them."""

from dataclasses import replace

from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.contextual import ContextualRetriever
from localmem.types import Unit
from tests.fakes import unit


def unit_of(name: str, text: str, session: str = "s1") -> Unit:
    return replace(unit(name, text), session=session)


def search(index: ContextualRetriever, query: str) -> list[str]:
    (matches,) = index.search([query], 9)
    return [match.id for match in matches]


def test_an_answer_is_found_by_its_question() -> None:
    index = ContextualRetriever(BM25Retriever())
    index.add([unit_of("a", "What is your sister's work?"), unit_of("b", "She is a vet."), unit_of("c", "Rain again.")])
    assert search(index, "sister") == ["a", "b"]
    assert sorted(search(index, "vet")) == ["b", "c"]


def test_context_is_of_the_same_session_and_may_come_from_an_earlier_call() -> None:
    index = ContextualRetriever(BM25Retriever(), context_units=2)
    index.add([unit_of("a", "Oslo"), unit_of("x", "Lisbon", "s2")])
    index.add([unit_of("b", "piano"), unit_of("c", "violin"), unit_of("d", "drum")])
    assert search(index, "Oslo") == ["a", "b", "c"]
    assert search(index, "Lisbon") == ["x"]


def test_the_date_is_read_and_a_unit_counts_once() -> None:
    index = ContextualRetriever(BM25Retriever())
    item = unit_of("a", "piano")
    index.add([item])
    index.add([item, unit_of("b", "violin")])
    assert search(index, f"{item.time:%B}") == ["a", "b"]
    assert search(index, "piano") == ["a", "b"]
    index.remove(["a"])
    assert search(index, "piano") == ["b"], "until the index is built again"
    index.add([item])
    assert sorted(search(index, "piano")) == ["a", "b"]
