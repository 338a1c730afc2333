"""Requests in flight never exceed the concurrency, each user's are in order, and arrivals have their rate."""

import threading
import time
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import fmean, pstdev

import pytest

from localmem.benchmark.latency.arrivals import arrival_gaps
from localmem.benchmark.latency.client import run_tasks
from localmem.benchmark.recipes import Load
from localmem.errors import BadInput


class Crowd:
    """Records who is served when, and the maximum at once; no task ends before `full` have been in flight at once."""

    def __init__(self, takes: float = 0.002, full: int = 1) -> None:
        self.served: list[tuple[int, int]] = []
        self.dues: list[float] = []
        self.most = 0
        self._now: set[int] = set()
        self._takes = takes
        self._full, self._filled = full, threading.Event()
        self._guard = threading.Lock()

    def task(self, user: int, number: int, due: float | None) -> None:
        with self._guard:
            assert user not in self._now
            self._now.add(user)
            self.most = max(self.most, len(self._now))
            self.served.append((user, number))
            self.dues += [] if due is None else [due]
            if self.most >= self._full:
                self._filled.set()
        self._filled.wait(30)
        time.sleep(self._takes)
        with self._guard:
            self._now.discard(user)


def _users(crowd: Crowd, users: int, tasks: int) -> list[list[partial[None]]]:
    return [[partial(crowd.task, user, number) for number in range(tasks)] for user in range(users)]


@pytest.mark.parametrize(("concurrency", "users"), [(1, 1), (3, 3), (2, 5), (4, 9)])
def test_a_closed_loop_keeps_its_concurrency(concurrency: int, users: int) -> None:
    crowd = Crowd(full=concurrency)
    seconds = run_tasks(Load("closed", concurrency=concurrency), _users(crowd, users, 6), time.perf_counter, "s")
    assert crowd.most == concurrency
    assert sorted(crowd.served) == [(user, number) for user in range(users) for number in range(6)]
    for user in range(users):
        assert [number for served, number in crowd.served if served == user] == list(range(6))
    assert seconds >= users * 6 / concurrency * 0.002


def test_an_open_loop_does_not_wait_for_answers() -> None:
    crowd = Crowd(takes=0.05, full=6)
    run_tasks(Load("open", rate=400.0), _users(crowd, 40, 1), time.perf_counter, "s")
    assert crowd.most >= 6
    gaps = [after - before for before, after in zip(crowd.dues, sorted(crowd.dues)[1:], strict=False)]
    assert sum(gaps) / len(gaps) == pytest.approx(1 / 400, rel=0.5)


def test_arrivals_are_the_same_for_the_same_seed() -> None:
    def dues(seed: str) -> list[float]:
        crowd, now = Crowd(0.0), time.perf_counter()
        run_tasks(Load("open", rate=2000.0), _users(crowd, 10, 1), lambda: now, seed)
        return sorted(due - now for due in crowd.dues)

    assert dues("a") == dues("a") != dues("b")


@pytest.mark.parametrize(("burstiness", "variation"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_gaps_keep_the_rate_and_come_as_bursty_as_wished(burstiness: float, variation: float) -> None:
    """The coefficient of variation of a gamma distribution is 1 / sqrt(shape)."""
    gaps = list(islice(arrival_gaps(Load("open", rate=5.0, burstiness=burstiness), "s"), 20_000))
    assert fmean(gaps) == pytest.approx(0.2, rel=0.05)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(variation, rel=0.06)


def test_a_trace_is_replayed_and_begins_again(tmp_path: Path) -> None:
    trace = tmp_path / "one.jsonl"
    trace.write_text("".join(f'{{"timestamp": {ms}, "input_length": 8}}\n' for ms in (0, 100, 400)))
    load = Load("open", trace=trace)
    assert list(islice(arrival_gaps(load, "s"), 6)) == pytest.approx([0.2, 0.1, 0.3, 0.2, 0.1, 0.3])
    assert str(load) == "turns as in one.jsonl"
    for times in ((5,), (5, 3)):
        trace.write_text("".join(f'{{"timestamp": {ms}}}\n' for ms in times))
        with pytest.raises(BadInput, match=f"holds {len(times)} arrivals; give two or more in ascending order"):
            next(arrival_gaps(load, "s"))


def test_a_user_has_one_request_in_flight() -> None:
    crowd = Crowd(takes=0.01)
    run_tasks(Load("open", rate=1000.0), _users(crowd, 2, 5), time.perf_counter, "s")
    assert crowd.most <= 2
    assert sorted(crowd.served) == [(user, number) for user in range(2) for number in range(5)]


@pytest.mark.parametrize("load", [Load("closed", concurrency=2), Load("open", rate=500.0)])
def test_an_error_of_a_task_is_raised(load: Load) -> None:
    def broken(_due: float | None) -> None:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError, match="a defect"):
        run_tasks(load, [[broken]], time.perf_counter, "s")
