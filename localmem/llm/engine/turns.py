"""Turns: threads that wait for shared work do it in turns, so that the work needs no thread of its own.

Does not depend on what the work is. A thread that stops waiting stops working; work that only it waited for pauses.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turns:
    """`step` does a small part of the shared work; one thread at a time calls it.

    `tidy` is called, by any thread, whenever no step runs and work may have been given up; it must be quick and may be
    called often.
    """

    def __init__(self, step: Callable[[], None], tidy: Callable[[], None]) -> None:
        self._step = step
        self._tidy = tidy
        self._changed = threading.Condition()
        self._busy = False

    def work_until(self, ready: Callable[[], bool]) -> None:
        """Returns once `ready()`, which a step of this thread or of another one may bring about."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: ready() or not self._busy)
                if ready():
                    return
                self._busy = True
            try:
                self._step()
            finally:
                self._release()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """No step runs inside the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)
            self._busy = True
        try:
            yield
        finally:
            self._release()

    def tidy(self) -> None:
        """Tidies now, or when the current step ends. Never waits, since a finaliser may call it inside a step."""
        with self._changed:
            if not self._busy:
                self._tidy()

    def _release(self) -> None:
        with self._changed:
            self._busy = False
            self._tidy()
            self._changed.notify_all()
