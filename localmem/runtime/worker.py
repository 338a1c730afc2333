"""Worker: threads that remember closed sessions, each user's in order. Does not know how a session is remembered."""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from localmem.errors import LocalmemError
from localmem.llm.wrappers import in_background
from localmem.store import SessionJob

log = logging.getLogger(__name__)

_THREADS = 2
MAX_ATTEMPTS = 3  # then the session waits for the user: `localmem doctor` reports it
_POLL_SECONDS = 5.0  # between looks for sessions that another process closed


class Jobs(Protocol):
    """What there is to remember; a Runtime is one."""

    def waiting_jobs(self) -> Sequence[SessionJob]:
        """The jobs to be done, oldest first."""

    def remember(self, job: SessionJob, /) -> bool:
        """Do the job; False if it failed."""


class Worker:
    """Does jobs on several threads: each user's in order, a failed one again after a while.

    The threads are daemons: a job that the end of the process interrupts is done again at the next start.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._busy_users: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads; a second call changes nothing."""
        if not self._threads:
            names = [f"remember-{number}" for number in range(_THREADS)]
            self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
            for thread in self._threads:
                thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """Start no further job; with `wait`, finish those in progress."""
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
            try:
                if self._do_next():
                    continue
            except Exception as error:  # no error of the store may end the thread that serves all users
                defect = None if isinstance(error, LocalmemError) else error
                log.warning("sessions wait to be remembered: %s", error, exc_info=defect)
            self._wake.wait(_POLL_SECONDS)

    def _do_next(self) -> bool:
        """Do a job; False without one."""
        job, succeeded = self._take_job(), False
        if job is None:
            return False
        try:
            with in_background():
                succeeded = self._jobs.remember(job)
        finally:
            with self._lock:
                self._busy_users.discard(job.user)
                if not succeeded:
                    self._not_before[job.user] = time.monotonic() + _POLL_SECONDS * (job.attempts + 1)
        return True

    def _take_job(self) -> SessionJob | None:
        """The first job of a user whom no other thread is working for."""
        jobs = self._jobs.waiting_jobs()
        with self._lock:
            for job in jobs:
                free = job.user not in self._busy_users and time.monotonic() >= self._not_before.get(job.user, 0.0)
                if free and job.attempts < MAX_ATTEMPTS:
                    self._busy_users.add(job.user)
                    return job
        return None
