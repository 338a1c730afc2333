"""How requests come: in a closed loop, so many at any time, or in an open one, so many a second whatever happens.

A task is one request of one user; a user's tasks are done in order, one at a time. Knows no agents.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from time import sleep

from localmem.benchmark.latency.result import Load

Task = Callable[[float | None], None]  # is told when it was due, where that is not the moment it begins
Now = Callable[[], float]


def drive(load: Load, users: Sequence[Sequence[Task]], now: Now, seed: str) -> float:
    """Does all tasks of all users; returns how long that took, in seconds. What a task raises is raised."""
    began = now()
    if load.kind == "open":
        _open(load.rate or 1.0, users, now, seed)
    else:
        _closed(load.concurrency or 1, users)
    return now() - began


def _closed(concurrency: int, users: Sequence[Sequence[Task]]) -> None:
    """Each thread serves its users in turn, so that whoever has been answered thinks while the others talk."""
    lanes = [users[lane::concurrency] for lane in range(min(concurrency, len(users)))]
    gate = threading.Barrier(len(lanes))

    def run(lane: Sequence[Sequence[Task]]) -> None:
        gate.wait()
        for task in _in_turn(lane):
            task(None)

    with ThreadPoolExecutor(len(lanes), thread_name_prefix="talk") as pool:
        for done in [pool.submit(run, lane) for lane in lanes]:
            done.result()


def _in_turn(lane: Sequence[Sequence[Task]]) -> Iterator[Task]:
    for step in range(max(map(len, lane))):
        yield from (tasks[step] for tasks in lane if step < len(tasks))


def _open(rate: float, users: Sequence[Sequence[Task]], now: Now, seed: str) -> None:
    """Arrivals with exponential gaps (a Poisson process). A user who still waits for a reply comes when it is there."""
    chance = Random(seed)  # noqa: S311  # arrivals, no secret
    free = _Free(users)
    due = now()
    with ThreadPoolExecutor(len(users), thread_name_prefix="talk") as pool:
        running = []
        for _ in range(sum(map(len, users))):
            due += chance.expovariate(rate)
            sleep(max(due - now(), 0.0))
            running.append(pool.submit(_arrive, free, due))
        for done in running:
            done.result()


def _arrive(free: "_Free", due: float) -> None:
    user, task = free.take()
    try:
        task(due)
    finally:
        free.back(user)


class _Free:
    """The users who could say something, those first who have waited longest."""

    def __init__(self, users: Sequence[Sequence[Task]]) -> None:
        self._left = [deque(tasks) for tasks in users]
        self._free = deque(index for index, tasks in enumerate(users) if tasks)
        self._changed = threading.Condition()

    def take(self) -> tuple[int, Task]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._free))
            user = self._free.popleft()
            return user, self._left[user].popleft()

    def back(self, user: int) -> None:
        with self._changed:
            if self._left[user]:
                self._free.append(user)
                self._changed.notify()
