"""Behaviour added around an LLM: late loading, metering by prompt name, caching, recording of answers, background work.

Each wrapper is an LLM itself and does not depend on the one it wraps.
"""

import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import cast

from localmem.batching import results_or_raise
from localmem.errors import LocalmemError, PartialFailure
from localmem.llm.base import LLM, Ability
from localmem.types import Completion, Prompt


class Wrapper:
    """Passes everything on to `inner`; the base class of wrappers."""

    def __init__(self, inner: LLM) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def context_length(self) -> int:
        return self.inner.context_length

    @property
    def abilities(self) -> Collection[Ability]:
        return self.inner.abilities

    def check(self, prompt: Prompt) -> None:
        self.inner.check(prompt)

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        try:
            completions = self.inner.generate(prompts)
        except PartialFailure as failure:
            for prompt, result in zip(prompts, failure.results, strict=True):
                if isinstance(result, Completion):
                    self._on_answer(prompt, result)
            raise
        for prompt, completion in zip(prompts, completions, strict=True):
            self._on_answer(prompt, completion)
        return completions

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        completion = yield from self.inner.stream(prompt)
        self._on_answer(prompt, completion)
        return completion

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self.inner.count_tokens(texts)

    def _on_answer(self, prompt: Prompt, completion: Completion) -> None:
        """Called once for each answered prompt."""


class LazyLLM(Wrapper):
    """An LLM that is loaded when it is first asked; with `count`, tokens are counted without loading it."""

    def __init__(self, load: Callable[[], LLM], count: Callable[[Sequence[str]], list[int]] | None = None) -> None:
        self._load = load
        self._count = count
        self._lock = threading.Lock()

    @cached_property
    def _loaded(self) -> LLM:
        return self._load()

    @property
    def inner(self) -> LLM:  # type: ignore[override]  # loaded under a lock instead of assigned
        """The LLM, loaded if need be."""
        with self._lock:
            return self._loaded

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._count(texts) if self._count else self.inner.count_tokens(texts)


@dataclass(frozen=True, slots=True)
class PromptUsage:
    """What the prompts of one name have cost so far. `trimmed` counts answers whose prompt was trimmed to fit."""

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    trimmed: int = 0
    cut_short: int = 0

    def plus(self, other: "PromptUsage") -> "PromptUsage":
        """The sum of both."""
        return PromptUsage(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def minus(self, earlier: "PromptUsage") -> "PromptUsage":
        """The usage since an earlier reading."""
        return PromptUsage(*(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self)))


def usage_of(completion: Completion) -> PromptUsage:
    """What one answer cost."""
    return PromptUsage(
        calls=1,
        input_tokens=completion.usage.input,
        cached_tokens=completion.usage.cached,
        output_tokens=completion.usage.output,
        trimmed=int(completion.trimmed > 0),
        cut_short=int(completion.finish == "length"),
    )


class Meter(Wrapper):
    """Counts calls and tokens by prompt name."""

    def __init__(self, inner: LLM) -> None:
        super().__init__(inner)
        self._guard = threading.Lock()
        self._usage: dict[str, PromptUsage] = {}

    def usage(self) -> dict[str, PromptUsage]:
        """A copy of the counts, by prompt name."""
        with self._guard:
            return dict(self._usage)

    def _on_answer(self, prompt: Prompt, completion: Completion) -> None:
        with self._guard:
            self._usage[prompt.name] = self._usage.get(prompt.name, PromptUsage()).plus(usage_of(completion))


class AnswerCache(Wrapper):
    """Answers a prompt without chance as it answered the same prompt before: variants of a system share many."""

    def __init__(self, inner: LLM) -> None:
        super().__init__(inner)
        self._answers: dict[str, Completion] = {}

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        names = [repr(prompt) for prompt in prompts]
        new = {name: prompt for name, prompt in zip(names, prompts, strict=True) if name not in self._answers}
        results: dict[str, Completion | Exception] = dict(self._answers)
        if new:
            try:
                answers: Sequence[object] = self.inner.generate(list(new.values()))
            except PartialFailure as failure:
                answers = failure.results
            results |= dict(zip(new, cast("Sequence[Completion | Exception]", answers), strict=True))
        greedy = {name for name, prompt in new.items() if not prompt.temperature}
        self._answers |= {name: each for name in greedy if isinstance(each := results[name], Completion)}
        return results_or_raise([results[name] for name in names])


class Recorder(Wrapper):
    """Passes each answered prompt to `write`, with the unix time at which the answer was complete."""

    def __init__(self, inner: LLM, write: Callable[[Prompt, Completion, float], None]) -> None:
        super().__init__(inner)
        self._write = write

    def _on_answer(self, prompt: Prompt, completion: Completion) -> None:
        self._write(prompt, completion, time.time())


class ForUser(Wrapper):
    """Marks every prompt as `user`'s."""

    def __init__(self, inner: LLM, user: str) -> None:
        super().__init__(inner)
        self._user = user

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return self.inner.generate([replace(prompt, user=self._user) for prompt in prompts])

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        return self.inner.stream(replace(prompt, user=self._user))


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
    """Marks the prompts of background threads, which nobody waits for, and of which at most `limit` run at a time.

    Backends that support priorities serve marked prompts last; the limit holds with every backend, because each running
    prompt slows down the others whatever its priority.
    """

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
