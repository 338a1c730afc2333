"""Background work: prompts that nobody waits for are marked, and only a few of them run at a time.

A thread declares itself to be in the background. Backends that support priorities serve marked prompts last; the limit
holds with every backend, because each running prompt slows down the others whatever its priority.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import cast

from localmem.batching import results_or_raise
from localmem.errors import LocalmemError, PartialFailure
from localmem.llm.base import LLM
from localmem.llm.wrappers import Wrapper
from localmem.types import Completion, Prompt

_BACKGROUND: ContextVar[bool] = ContextVar("background", default=False)


@contextmanager
def in_background() -> Iterator[None]:
    """Marks the work of this thread inside the block as background work."""
    token = _BACKGROUND.set(True)
    try:
        yield
    finally:
        _BACKGROUND.reset(token)


def is_background() -> bool:
    """Whether this thread is doing background work."""
    return _BACKGROUND.get()


class Background(Wrapper):
    """Marks the prompts of background threads, of which at most `limit` run at a time."""

    def __init__(self, inner: LLM, *, limit: int) -> None:
        super().__init__(inner)
        self._free = limit
        self._changed = threading.Condition()

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if not is_background():
            return self.inner.generate(prompts)
        marked = [replace(prompt, background=True) for prompt in prompts]
        results: list[Completion | Exception] = []
        while len(results) < len(marked):
            with self._slots(len(marked) - len(results)) as slots:
                results += self._attempt(marked[len(results) : len(results) + slots])
        return results_or_raise(results)

    @contextmanager
    def _slots(self, count: int) -> Iterator[int]:
        """Waits for a free slot; yields how many of the `count` requested are free by then."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0)
            slots = min(count, self._free)
            self._free -= slots
        try:
            yield slots
        finally:
            with self._changed:
                self._free += slots
                self._changed.notify_all()

    def _attempt(self, prompts: Sequence[Prompt]) -> Sequence[Completion | Exception]:
        try:
            return self.inner.generate(prompts)
        except PartialFailure as failure:
            return cast("list[Completion | Exception]", failure.results)
        except LocalmemError as error:
            return [error] * len(prompts)
