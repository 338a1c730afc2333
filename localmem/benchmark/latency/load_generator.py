"""Sends requests in a closed loop (a fixed number at any time) or an open loop (a fixed rate, whatever happens).

A task is one request of one user; a user's tasks run in order, one at a time. Does not depend on agents.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from time import sleep

from localmem.benchmark.latency.result import Load

Task = Callable[[float | None], None]  # receives its due time, or None when it is due as it starts
Now = Callable[[], float]


def run_tasks(load: Load, users: Sequence[Sequence[Task]], now: Now, seed: str) -> float:
    """Run all tasks of all users; returns the seconds that took. Raises whatever a task raises."""
    start = now()
    if load.kind == "open":
        _run_open(load.rate or 1.0, users, now, seed)
    else:
        _run_closed(load.concurrency or 1, users)
    return now() - start


def _run_closed(concurrency: int, users: Sequence[Sequence[Task]]) -> None:
    """Each thread serves its users in turn, so a user who got a reply pauses while the thread's others talk."""
    lanes = [users[lane::concurrency] for lane in range(min(concurrency, len(users)))]
    gate = threading.Barrier(len(lanes))

    def run(lane: Sequence[Sequence[Task]]) -> None:
        gate.wait()
        for task in _interleave(lane):
            task(None)

    with ThreadPoolExecutor(len(lanes), thread_name_prefix="bench-user") as pool:
        for future in [pool.submit(run, lane) for lane in lanes]:
            future.result()


def _interleave(lane: Sequence[Sequence[Task]]) -> Iterator[Task]:
    for step in range(max(map(len, lane))):
        yield from (tasks[step] for tasks in lane if step < len(tasks))


def _run_open(rate: float, users: Sequence[Sequence[Task]], now: Now, seed: str) -> None:
    """Poisson arrivals: exponential gaps. A user still waiting for a reply is served when it is there."""
    random = Random(seed)  # noqa: S311  # arrival times, not a secret
    idle = _IdleUsers(users)
    due = now()
    with ThreadPoolExecutor(len(users), thread_name_prefix="bench-user") as pool:
        futures = []
        for _ in range(sum(map(len, users))):
            due += random.expovariate(rate)
            sleep(max(due - now(), 0.0))
            futures.append(pool.submit(_arrive, idle, due))
        for future in futures:
            future.result()


def _arrive(idle: "_IdleUsers", due: float) -> None:
    user, task = idle.take()
    try:
        task(due)
    finally:
        idle.give_back(user)


class _IdleUsers:
    """The users who can send a request, longest idle first."""

    def __init__(self, users: Sequence[Sequence[Task]]) -> None:
        self._remaining = [deque(tasks) for tasks in users]
        self._idle = deque(index for index, tasks in enumerate(users) if tasks)
        self._changed = threading.Condition()

    def take(self) -> tuple[int, Task]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._idle))
            user = self._idle.popleft()
            return user, self._remaining[user].popleft()

    def give_back(self, user: int) -> None:
        with self._changed:
            if self._remaining[user]:
                self._idle.append(user)
                self._changed.notify()
