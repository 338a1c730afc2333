"""Threads that wait for work they share take turns in doing it, so no thread of our own is needed.

Knows nothing of the work. A thread that stops waiting stops working, and what only it waited for rests.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turns:
    """`step` does a little of the shared work; it is called by one thread at a time.

    `tidy` is called, by whichever thread, whenever no step is under way and something may have been given up; it must
    be quick and may be called often.
    """

    def __init__(self, step: Callable[[], None], tidy: Callable[[], None]) -> None:
        self._step = step
        self._tidy = tidy
        self._changed = threading.Condition()
        self._taken = False

    def work_until(self, ready: Callable[[], bool]) -> None:
        """Returns once `ready()`, which a step of this thread or of another may bring about."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: ready() or not self._taken)
                if ready():
                    return
                self._taken = True
            try:
                self._step()
            finally:
                self._release()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No step is under way inside."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taken)
            self._taken = True
        try:
            yield
        finally:
            self._release()

    def tidy(self) -> None:
        """Tidies now, or when the step under way ends. Never waits: a finaliser may call it inside a step."""
        with self._changed:
            if not self._taken:
                self._tidy()

    def _release(self) -> None:
        with self._changed:
            self._taken = False
            self._tidy()
            self._changed.notify_all()
