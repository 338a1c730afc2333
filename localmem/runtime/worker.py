"""Rememberer: the threads that remember closed sessions. Knows no store and no terminal."""

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from localmem.llm.background import in_background
from localmem.store.records import Job

ATTEMPTS = 3  # a session that cannot be remembered is tried so often, then reported by `localmem doctor`
_POLL = 5.0  # seconds between looks for sessions that another process closed


class Jobs(Protocol):
    """What there is to remember; a runtime is one."""

    def waiting_jobs(self) -> Sequence[Job]:
        """The jobs to be done, oldest first."""
        ...

    def remember(self, job: Job, /) -> bool:
        """Whether it was done."""
        ...


class Rememberer:
    """Does the jobs of closed sessions on `workers` threads: each user's in order, a failed one again after a while.

    The threads are daemons: a job that is cut off by the end of the process is done again at the next start.
    """

    def __init__(self, jobs: Jobs, workers: int = 2) -> None:
        self._jobs = jobs
        self._workers = workers
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._busy: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin; a second call changes nothing."""
        if not self._threads:
            names = [f"remember-{number}" for number in range(self._workers)]
            self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
            for thread in self._threads:
                thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """Begin no further job; with `wait`, see those through that are being done."""
        self._stopping.set()
        self._wake.set()
        for thread in self._threads if wait else ():
            thread.join()

    def nudge(self) -> None:
        """Look for jobs now."""
        self._wake.set()

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            job = self._take()
            if job is None:
                self._wake.wait(_POLL)
                continue
            with in_background():
                done = self._jobs.remember(job)
            with self._guard:
                self._busy.discard(job.user)
                if not done:
                    self._not_before[job.user] = time.monotonic() + _POLL * (job.attempts + 1)

    def _take(self) -> Job | None:
        """The first job of a user whom no other thread is at work for."""
        jobs = self._jobs.waiting_jobs()
        with self._guard:
            for job in jobs:
                free = job.user not in self._busy and time.monotonic() >= self._not_before.get(job.user, 0.0)
                if free and job.attempts < ATTEMPTS:
                    self._busy.add(job.user)
                    return job
        return None
