"""Sessions that are over, remembered in the background by the runtime's own threads, and how long each took.

Stands around what a Rememberer works on. While it is told to, it keeps some users' sessions coming, so that there is
always something to remember. Knows a runtime by the two things it is asked for.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from localmem.benchmark.latency.client import end_sample
from localmem.benchmark.latency.result import Sample
from localmem.benchmark.latency.stopwatch import Clock


class Runtime(Protocol):
    """What does the jobs. A job is a record of the store's, with its user and session."""

    def waiting_jobs(self) -> Sequence[Any]:
        """Those to be done."""
        ...

    def remember(self, job: Any, /) -> bool:  # noqa: ANN401  # the store's record, which is only passed on
        """Whether it was done."""
        ...


class WatchedJobs:
    """A runtime's jobs, each of which becomes a sample. `began` is the clock's time at which the point did."""

    def __init__(
        self, runtime: Runtime, clock: Clock, point: str, began: float, write: Callable[[Sample], None]
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._point = point
        self._began = began
        self._write = write
        self._changed = threading.Condition()
        self._open = 0
        self._feed: Callable[[str], bool] = lambda _user: False

    def waiting_jobs(self) -> Sequence[Any]:
        """The runtime's."""
        return self._runtime.waiting_jobs()

    def remember(self, job: Any, /) -> bool:  # noqa: ANN401  # the store's record, which is only passed on
        """As the runtime does it, timed. A job that failed counts as done: no point waits for its next attempt."""
        with self._clock.measuring() as reading:
            done = self._runtime.remember(job)
            took = self._clock.now() - reading.began
        sent = reading.began - self._began
        self._write(end_sample(self._point, job.user, job.session, sent, reading, took, done))
        again = self._feed(job.user)
        with self._changed:
            self._open = max(self._open + int(again) - 1, 0)  # one that failed may come again
            self._changed.notify_all()
        return done

    def expect(self, sessions: int) -> None:
        """So many sessions were closed."""
        with self._changed:
            self._open += sessions

    def wait(self) -> None:
        """Until all that were closed have been remembered."""
        with self._changed:
            self._changed.wait_for(lambda: self._open <= 0)

    def keep_coming(self, feed: Callable[[str], bool] | None) -> None:
        """Whenever a user's session has been remembered, `feed` may close another and say so; None: no more."""
        self._feed = feed or (lambda _user: False)
