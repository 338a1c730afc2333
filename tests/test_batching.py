"""Batched: order, isolation of errors, batches under load, and interrupts that leave nobody waiting."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from localmem.batching import Batched
from localmem.errors import BadInput, PartialFailure


def test_results_come_back_in_order_to_their_callers() -> None:
    batched: Batched[int, int] = Batched(lambda items: [item * 2 for item in items])
    with ThreadPoolExecutor(32) as pool:
        results = list(pool.map(lambda start: batched([start, start + 1]), range(500)))
    assert results == [[start * 2, start * 2 + 2] for start in range(500)]


def test_an_empty_list_calls_nothing() -> None:
    assert Batched[int, int](lambda items: 1 / 0)([]) == []  # type: ignore[arg-type, return-value]


def _gather(limit: int, sizes: list[int]) -> list[int]:
    """The sizes of the batches that form while a first call is held back."""
    release, batches = threading.Event(), list[int]()

    def call(items: list[int]) -> list[int]:
        if not batches:
            batches.append(len(items))
            release.wait()
        else:
            batches.append(len(items))
        return items

    batched: Batched[int, int] = Batched(call, limit=limit)
    with ThreadPoolExecutor(len(sizes) + 1) as pool:
        pool.submit(batched, [0])
        while not batches:
            pass
        waiting = [pool.submit(batched, list(range(size))) for size in sizes]
        while len(batched._waiting) < len(sizes):
            pass
        release.set()
        for future, size in zip(waiting, sizes, strict=True):
            assert len(future.result(10)) == size
    return batches[1:]


def test_what_waits_forms_one_batch() -> None:
    assert _gather(64, [1] * 20) == [20]


def test_a_batch_keeps_to_the_limit_unless_one_request_is_larger() -> None:
    assert sorted(_gather(4, [9, 9])) == [9, 9]
    assert sum(_gather(4, [1] * 10)) == 10
    assert max(_gather(4, [1] * 10)) <= 4


def test_one_bad_request_does_not_fail_its_neighbours() -> None:
    def call(items: list[int]) -> list[int]:
        if 13 in items:
            raise BadInput("thirteen")
        return items

    batched: Batched[int, int] = Batched(call)
    with ThreadPoolExecutor(16) as pool:
        futures = {number: pool.submit(batched, [number]) for number in range(30)}
    with pytest.raises(BadInput, match="thirteen"):
        futures.pop(13).result()
    assert [future.result() for future in futures.values()] == [[number] for number in futures]


def test_a_partial_failure_reaches_only_its_caller() -> None:
    def call(items: list[int]) -> list[int]:
        results: list[object] = [BadInput(f"odd {item}") if item % 2 else item for item in items]
        if any(isinstance(result, Exception) for result in results):
            raise PartialFailure(results)
        return items

    batched: Batched[int, int] = Batched(call)
    assert batched([2, 4]) == [2, 4]
    with pytest.raises(BadInput, match="odd 3"):
        batched([3])
    with pytest.raises(PartialFailure) as caught:
        batched([2, 3])
    assert caught.value.results[0] == 2


def test_an_interrupted_leader_leaves_nobody_waiting() -> None:
    entered, release = threading.Event(), threading.Event()

    def call(items: list[int]) -> list[int]:
        if items == [0]:
            entered.set()
            release.wait()
            raise KeyboardInterrupt
        return items

    batched: Batched[int, int] = Batched(call)
    interrupted: list[BaseException] = []

    def lead() -> None:
        try:
            batched([0])
        except KeyboardInterrupt as error:
            interrupted.append(error)

    leader = threading.Thread(target=lead)
    leader.start()
    entered.wait()
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(batched, [number]) for number in range(1, 5)]
        while len(batched._waiting) < 4:
            pass
        release.set()
        assert [future.result(10) for future in others] == [[1], [2], [3], [4]]
    leader.join(10)
    assert interrupted
    assert batched([7]) == [7]
