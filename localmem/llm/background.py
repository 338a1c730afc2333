"""Work that nobody waits for stands behind what somebody does: its prompts are marked, and few are under way at a time.

Whoever works in the background says so for its thread. Backends that can put a marked prompt behind the others; the
bound holds with every backend, since a prompt that is being answered slows the others whatever its rank.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import cast

from localmem.batching import settled
from localmem.errors import LocalmemError, PartialFailure
from localmem.llm.base import LLM
from localmem.llm.wrappers import Wrapper
from localmem.types import Completion, Prompt

_BEHIND: ContextVar[bool] = ContextVar("behind", default=False)


@contextmanager
def in_background() -> Iterator[None]:
    """Nobody waits for what is asked on this thread inside."""
    token = _BEHIND.set(True)
    try:
        yield
    finally:
        _BEHIND.reset(token)


def behind() -> bool:
    """Whether nobody waits for what is asked on this thread now."""
    return _BEHIND.get()


class Background(Wrapper):
    """Marks the prompts of threads that are in the background; of all of these at most `limit` are under way."""

    def __init__(self, inner: LLM, *, limit: int) -> None:
        super().__init__(inner)
        self._free = limit
        self._changed = threading.Condition()

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if not behind():
            return self.inner.generate(prompts)
        marked = [replace(prompt, background=True) for prompt in prompts]
        results: list[Completion | Exception] = []
        while len(results) < len(marked):
            with self._places(len(marked) - len(results)) as places:
                results += self._answers(marked[len(results) : len(results) + places])
        return settled(results)

    @contextmanager
    def _places(self, wanted: int) -> Iterator[int]:
        """As many as there are by now, at least one."""
        with self._changed:
            self._changed.wait_for(lambda: self._free > 0)
            taken = min(wanted, self._free)
            self._free -= taken
        try:
            yield taken
        finally:
            with self._changed:
                self._free += taken
                self._changed.notify_all()

    def _answers(self, prompts: Sequence[Prompt]) -> Sequence[Completion | Exception]:
        try:
            return self.inner.generate(prompts)
        except PartialFailure as failure:
            return cast("list[Completion | Exception]", failure.results)
        except LocalmemError as error:
            return [error] * len(prompts)
