"""Memory: when its index is filled, and that bank and index stay one."""

import threading
from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem.bank import Bank
from localmem.errors import BadSettings, BadVectors
from localmem.retrieval.base import Scope, Side
from localmem.retrieval.dense import DenseRetriever
from localmem.systems.baselines import NoMemory, RetrievalBaseline, exchange_retrieval
from localmem.types import AddUnit, RetireUnit, Unit
from tests.fakes import START, WordEncoder, WordRetriever, unit


def bank(*names: str) -> Bank:
    return Bank().apply([AddUnit(unit(name, f"dog {name}"), START) for name in names])


def memory_of(bank: Bank, encoder: WordEncoder) -> RetrievalBaseline:
    return exchange_retrieval(DenseRetriever(encoder), bank=bank)


def search(memory: RetrievalBaseline, text: str = "dog") -> list[str]:
    return [hit.unit.id for hit in memory.search(text, 99)]


class Counting(WordEncoder):
    """Keeps what came in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        self.calls.append(list(texts))
        return super().encode(texts, side)


def test_a_memory_that_is_only_looked_at_encodes_nothing() -> None:
    encoder = WordEncoder()
    memory = memory_of(bank("a", "b"), encoder)
    assert list(memory.bank.units) == ["a", "b"]
    memory.apply([RetireUnit("a", "b", "wrong", START)])
    assert encoder.encoded == []
    assert memory.index_memory < 1000
    assert search(memory) == ["b"]
    assert encoder.encoded == ["dog b", "dog"]
    assert memory.index_memory > 512 * 4


def test_the_first_search_takes_the_whole_bank_at_once_and_once() -> None:
    encoder = Counting()
    memory = memory_of(bank("a", "b", "c"), encoder)
    assert search(memory) == search(memory) == ["a", "b", "c"]
    assert encoder.calls == [["dog a", "dog b", "dog c"], ["dog"], ["dog"]]


def test_an_addition_is_encoded_at_once_behind_the_bank_that_was_there() -> None:
    encoder = WordEncoder()
    memory = memory_of(bank("a", "b"), encoder)
    memory.apply([AddUnit(unit("c", "dog c"), START)])
    assert encoder.encoded == ["dog a", "dog b", "dog c"]
    memory.apply([AddUnit(unit("d", "dog d"), START), RetireUnit("a", "d", "", START)])
    assert encoder.encoded[-1] == "dog d"
    assert search(memory) == ["b", "c", "d"]


def test_what_cannot_be_encoded_fails_the_search_and_not_the_start() -> None:
    class Broken(WordEncoder):
        def encode(self, texts, side):  # type: ignore[no-untyped-def]
            return super().encode(texts, side) * (3 if "dog b" in texts else 1)

    memory = memory_of(bank("a", "b"), Broken())
    for _ in range(2):
        with pytest.raises(BadVectors):
            memory.search("dog", 3)
    memory.catch_up(bank("a", "c"))
    assert search(memory) == ["a", "c"]


def test_another_process_changes_are_taken_over_before_and_after_the_first_search() -> None:
    encoder = WordEncoder()
    memory = memory_of(bank("a", "b"), encoder)
    memory.catch_up(bank("b"))
    assert encoder.encoded == []
    assert search(memory) == ["b"]
    memory.catch_up(bank("c", "b"))
    assert sorted(search(memory)) == ["b", "c"]
    memory.catch_up(bank("c"))
    assert search(memory) == ["c"]
    memory.catch_up(Bank().apply([AddUnit(unit("c", "a cat"), START)]))  # the id of one that was erased
    assert memory.search("a cat", 1)[0].score > 0.9


def test_a_search_takes_a_scope() -> None:
    memory = exchange_retrieval(
        WordRetriever(),
        bank=Bank().apply([AddUnit(unit(f"u{n}", "dog", time=START + timedelta(days=n)), START) for n in range(5)]),
    )
    hits = memory.search("dog", 9, Scope(since=START + timedelta(days=3)))
    assert [hit.unit.id for hit in hits] == ["u3", "u4"]


def test_a_memory_without_an_index_finds_nothing_and_says_so() -> None:
    memory = NoMemory()
    assert memory.search("dog", 3) == []
    assert memory.index_memory == 0
    with pytest.raises(BadSettings, match="system 'none' has no index"):
        memory.index  # noqa: B018  # what is tested


def test_threads_that_search_first_while_another_adds_and_retires_miss_nothing() -> None:
    memory = memory_of(bank(*(f"u{n}" for n in range(50))), WordEncoder())
    start = threading.Barrier(3)
    batches: list[list[str]] = []

    def look() -> None:
        start.wait()
        batches.extend(search(memory) for _ in range(20))

    def change() -> None:
        start.wait()
        for n in range(20):
            memory.apply([AddUnit(unit(f"new{n}", "dog again"), START), RetireUnit(f"u{n}", "", "", START)])

    threads = [threading.Thread(target=each) for each in (look, look, change)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected: list[Unit] = list(memory.bank.live())
    assert sorted(search(memory)) == sorted(unit.id for unit in expected)
    assert all(len(set(ids)) == len(ids) and {f"u{n}" for n in range(20, 50)} <= set(ids) for ids in batches)
