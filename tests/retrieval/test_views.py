"""ViewRetriever: exchanges found by either side, by a sentence, and once each."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem.retrieval.base import Side
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.views import Indexes, ViewRetriever, exchange_of, index_texts, split_sentences
from localmem.retrieval.wrappers import ContextualRetriever
from localmem.types import Unit
from tests.fakes import WordEncoder, unit

STATEMENT = "My sister Mia keeps bees in Porto. The dog is called Bruno."
REPLY = "Bruno suits a boxer. Would Mia sell honey?"


def exchange(name: str, statement: str, reply: str) -> list[Unit]:
    """The two units of an exchange."""
    question = unit(f"{name}@u0", f"User: {statement}", key=statement)
    answered = unit(f"{name}@a0", f"Assistant: {reply}", key=f"User: {statement}\nAssistant: {reply}")
    return [replace(question, speaker="User"), replace(answered, speaker="Assistant")]


def views(*, dense: bool = True, lexical: bool = True) -> ViewRetriever:
    return ViewRetriever(
        Indexes(
            DenseRetriever(WordEncoder()) if dense else None,
            BM25Retriever() if lexical else None,
            ContextualRetriever(BM25Retriever()) if lexical else None,
        )
    )


def names(retriever: ViewRetriever, query: str, k: int = 5) -> list[str]:
    (matches,) = retriever.search([query], k)
    return [match.id for match in matches]


@pytest.mark.parametrize("parts", [{}, {"dense": False}, {"lexical": False}])
def test_an_exchange_is_returned_once_by_the_side_that_matches(parts: dict[str, bool]) -> None:
    retriever = views(**parts)
    retriever.add([*exchange("s.0", STATEMENT, REPLY), *exchange("s.2", "It rained.", "Take an umbrella.")])
    matches = names(retriever, "bees in Porto")
    assert exchange_of(matches[0]) == "s.0"
    assert len({exchange_of(match) for match in matches}) == len(matches)


def test_the_best_sentence_says_which_side_matched() -> None:
    retriever = views()
    retriever.add(exchange("s.0", STATEMENT, REPLY))
    assert names(retriever, "The dog is called Bruno.") == ["s.0@u0"]
    assert names(retriever, "Would Mia sell honey?") == ["s.0@a0"]


def test_removed_units_match_in_no_view() -> None:
    retriever = views()
    retriever.add([*exchange("s.0", STATEMENT, REPLY), *exchange("s.2", "It rained.", "Take an umbrella.")])
    retriever.remove(["s.0@u0", "s.0@a0", "unknown"])
    assert {exchange_of(match) for match in names(retriever, "Bruno bees Porto honey umbrella")} == {"s.2"}


def test_adding_a_unit_twice_changes_nothing() -> None:
    once, twice = views(), views()
    units = exchange("s.0", STATEMENT, REPLY)
    for retriever, times in ((once, 1), (twice, 2)):
        for _ in range(times):
            retriever.add(units)
    assert once.search(["bees"], 5) == twice.search(["bees"], 5)


@pytest.mark.parametrize("part", ["dense", "words", "context"])
def test_an_addition_that_was_interrupted_can_be_repeated(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: Sequence[Unit]) -> None:
        raise KeyboardInterrupt

    first, repeated = views(), views()
    units = [*exchange("s.0", STATEMENT, REPLY), *exchange("s.2", "It rained.", "Take an umbrella.")]
    first.add(units)
    with monkeypatch.context() as patch:
        patch.setattr(getattr(repeated._indexes, part), "add", interrupt)
        with pytest.raises(KeyboardInterrupt):
            repeated.add(units)
    assert names(repeated, "bees in Porto") == []
    repeated.add(units)
    assert repeated.search(["bees in Porto"], 5) == first.search(["bees in Porto"], 5)
    repeated.remove([unit.id for unit in units])
    assert names(repeated, "bees in Porto") == []


def test_every_text_that_is_encoded_belongs_to_a_unit() -> None:
    encoded: list[str] = []

    class Recording(WordEncoder):
        def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
            encoded.extend(texts)
            return super().encode(texts, side)

    units = exchange("s.0", STATEMENT, REPLY)
    ViewRetriever(Indexes(DenseRetriever(Recording()), None, None)).add(units)
    assert set(encoded) == {text for unit in units for text in index_texts(unit)}


def test_the_texts_of_a_unit_are_encoded_in_one_call_before_they_are_searched_for() -> None:
    calls: list[tuple[str, ...]] = []

    class Remembering(WordEncoder):
        def read_ahead(self, texts: Sequence[str]) -> None:
            calls.append(tuple(texts))

    (question, _) = exchange("s.0", STATEMENT, REPLY)
    ViewRetriever(Indexes(DenseRetriever(Remembering()), None, None)).read_ahead([question])
    assert calls == [index_texts(question)]
    ViewRetriever(Indexes(DenseRetriever(WordEncoder()), None, None)).read_ahead([question])
    ViewRetriever(Indexes(None, None, None)).read_ahead([question])


def test_a_unit_that_is_no_turn_has_its_key_alone() -> None:
    assert index_texts(unit("note", STATEMENT, key="bees")) == ("bees",)


def test_sentences_end_at_marks_and_lines() -> None:
    assert split_sentences("First of all. Then something else!\n- a line of a list") == (
        "First of all.",
        "Then something else!",
        "- a line of a list",
    )
    assert split_sentences("今天我在成都吃了很多很多的火锅。明天我要和妈妈一起去看医生。") == (
        "今天我在成都吃了很多很多的火锅。",
        "明天我要和妈妈一起去看医生。",
    )
    assert split_sentences("Yes. No.") == ()
