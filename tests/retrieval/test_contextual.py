"""An index that reads units together with what went before them."""

from dataclasses import replace

from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.contextual import ContextualRetriever
from localmem.types import Unit
from tests.fakes import unit


def said(name: str, text: str, session: str = "s1") -> Unit:
    return replace(unit(name, text), session=session)


def found(index: ContextualRetriever, query: str) -> list[str]:
    (matches,) = index.search([query], 9)
    return [match.id for match in matches]


def test_an_answer_is_found_by_its_question() -> None:
    index = ContextualRetriever(BM25Retriever())
    index.add([said("a", "What is your sister's work?"), said("b", "She is a vet."), said("c", "Rain again.")])
    assert found(index, "sister") == ["a", "b"]
    assert sorted(found(index, "vet")) == ["b", "c"]


def test_what_went_before_is_of_the_same_session_and_may_have_come_in_an_earlier_call() -> None:
    index = ContextualRetriever(BM25Retriever(), context_units=2)
    index.add([said("a", "Oslo"), said("x", "Lisbon", "s2")])
    index.add([said("b", "piano"), said("c", "violin"), said("d", "drum")])
    assert found(index, "Oslo") == ["a", "b", "c"]
    assert found(index, "Lisbon") == ["x"]


def test_the_date_is_read_and_a_unit_counts_once() -> None:
    index = ContextualRetriever(BM25Retriever())
    one = said("a", "piano")
    index.add([one])
    index.add([one, said("b", "violin")])
    assert found(index, f"{one.time:%B}") == ["a", "b"]
    assert found(index, "piano") == ["a", "b"]
    index.remove(["a"])
    assert found(index, "piano") == ["b"], "until the index is made anew"
    index.add([one])
    assert sorted(found(index, "piano")) == ["a", "b"]
