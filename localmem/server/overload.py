"""ReplyPool: the threads of replies and a queue of bounded length; what does not fit into it is refused at once.

A queue without a bound makes everybody wait for longer and longer. Knows nothing of chat, memory or who asks.
"""

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic

from localmem.server.errors import ApiError

_RECENT = 0.1  # weight of the last reply in the mean of how long replies take
_LONGEST = 60  # seconds after which a client may always try again


class ReplyPool:
    """Runs up to `threads` replies at a time while up to `waiting` more wait; safe for many threads.

    A reply that returns a Future has left its thread to another and is in progress until the Future is done.
    """

    def __init__(self, threads: int, waiting: int) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="reply")
        self._threads, self._waiting = threads, waiting
        self._tails = ThreadPoolExecutor(threads, thread_name_prefix="reply-end")
        self._guard = threading.Lock()
        self._empty = threading.Condition(self._guard)
        self._count = 0
        self._mean_seconds = 1.0

    @property
    def count(self) -> int:
        """The replies in progress and those that wait."""
        return self._count

    def submit(self, run: Callable[..., object], *arguments: object) -> None:
        """Run it as soon as a thread is free. Raises ApiError 429, with the seconds to wait, when the queue is full."""
        with self._guard:
            if self._count >= self._threads + self._waiting:
                raise self._refusal()
            self._count += 1
        start = monotonic()
        self._executor.submit(run, *arguments).add_done_callback(lambda future: self._leave(future, start))

    def resume(self, run: Callable[[], object]) -> None:
        """Run what remains of a reply that has left its thread; it waits for no reply that has not begun."""
        self._tails.submit(run)

    def shutdown(self) -> None:
        """Wait for the replies in progress, which have been stopped; those that wait for a thread never start."""
        self._executor.shutdown(cancel_futures=True)
        with self._empty:
            self._empty.wait_for(lambda: not self._count, _LONGEST)
        self._tails.shutdown()

    def _leave(self, run: Future[object], start: float) -> None:
        """The thread is free; a reply that goes on without one leaves at its own end."""
        goes_on = None if run.cancelled() or run.exception() else run.result()
        if isinstance(goes_on, Future) and not goes_on.done():
            goes_on.add_done_callback(lambda end: self._leave(end, start))
            return
        with self._empty:
            self._count -= 1
            self._mean_seconds += _RECENT * (monotonic() - start - self._mean_seconds)
            self._empty.notify_all()

    def _refusal(self) -> ApiError:
        """Half of the queue has gone when the client comes back: so long a queue takes at the present speed."""
        seconds = min(max(1, math.ceil(self._mean_seconds / 2)), _LONGEST)
        return ApiError(
            429,
            f"{self._threads} replies are in progress and {self._waiting} requests wait; try again in {seconds} s, "
            "or raise server.threads or server.waiting",
            code="overloaded",
            headers={"Retry-After": str(seconds)},
        )
