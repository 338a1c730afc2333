"""Which part took how long: a stopwatch for each thread, and a shell around a part that presses it.

Parts are wrapped, never patched. A stage counts what it took itself: what a part spends in another one that is watched
is that one's. A thread that measures nothing passes through untouched, so an index may be built behind.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from localmem.llm.base import LLM
from localmem.llm.wrappers import Spent, Wrapper, spent_on
from localmem.types import Completion, Prompt

Part = TypeVar("Part")
Now = Callable[[], float]

AFTER = "after:"
STAGES: Mapping[str, str] = {
    "encode": "embed",
    "search": "search",
    "add": "index",
    "remove": "index",
    "score": "rerank",
    "segment": "segment",
    "compress": "compress",
    "classify": "classify",
    "add_turns": "store",
    "close": "store",
    "is_current": "store",
    "commit": "commit",
    "finish": "commit",
}


@dataclass(slots=True)
class Reading:
    """What one request has taken so far: milliseconds by stage, and what its prompts cost, by name.

    `reply_ended` is when the last piece of the reply had come; stages that begin later are marked as behind it.
    """

    began: float
    stages: dict[str, float] = field(default_factory=dict)
    calls: dict[str, Spent] = field(default_factory=dict)
    reply: Completion | None = None
    prefix: str = ""
    _inner: list[float] = field(default_factory=list)

    def took(self, stage: str, seconds: float) -> None:
        name = self.prefix + stage
        self.stages[name] = self.stages.get(name, 0.0) + 1000 * seconds

    def saw(self, prompt: Prompt, completion: Completion) -> None:
        self.calls[prompt.name] = self.calls.get(prompt.name, Spent()).plus(spent_on(completion))


class Clock:
    """One for a run. `now` gives seconds."""

    def __init__(self, now: Now = time.perf_counter) -> None:
        self.now = now
        self._local = threading.local()

    @property
    def reading(self) -> Reading | None:
        """What is being measured on this thread."""
        return cast("Reading | None", getattr(self._local, "reading", None))

    @contextmanager
    def measuring(self) -> Iterator[Reading]:
        """One request on this thread, from now on."""
        reading = self._local.reading = Reading(self.now())
        try:
            yield reading
        finally:
            self._local.reading = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """The time inside is this stage's, but for what is spent in stages inside it."""
        reading = self.reading
        if reading is None:
            yield
            return
        began = self.now()
        reading._inner.append(0.0)  # noqa: SLF001  # a clock's own
        try:
            yield
        finally:
            whole = self.now() - began
            reading.took(name, whole - reading._inner.pop())  # noqa: SLF001
            if reading._inner:  # noqa: SLF001
                reading._inner[-1] += whole  # noqa: SLF001

    def watch(self, part: Part) -> Part:
        """The same part, with a stopwatch on those of its methods that are stages."""
        return cast("Part", _Watched(part, self))


class _Watched:
    """Any part: an encoder, a retriever, a journal ... It answers as the part does, and is typed as one."""

    def __init__(self, part: object, clock: Clock) -> None:
        self._part = part
        self._clock = clock

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the part has
        found = getattr(self._part, name)
        stage = STAGES.get(name)
        if stage is None:
            return found

        def timed(*args: object, **more: object) -> object:
            with self._clock.stage(stage):
                return found(*args, **more)

        self.__dict__[name] = timed  # the next call need not come here
        return timed


class WatchedLLM(Wrapper):
    """A call is the stage `llm:<prompt name>`; a stream is the reply: `first_token`, then `decode`."""

    def __init__(self, inner: LLM, clock: Clock) -> None:
        super().__init__(inner)
        self._clock = clock

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if not prompts:
            return []
        with self._clock.stage(f"llm:{prompts[0].name}"):
            return super().generate(prompts)

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        completion = yield from self._timed(self.inner.stream(prompt))
        self._saw(prompt, completion)
        if reading := self._clock.reading:
            reading.reply, reading.prefix = completion, AFTER
        return completion

    def _timed(self, pieces: Generator[str, None, Completion]) -> Generator[str, None, Completion]:
        """A part of the reply's time only while a piece is waited for: what is done with it is another's."""
        stage = "first_token"
        with closing(pieces):
            while True:
                try:
                    with self._clock.stage(stage):
                        piece = next(pieces)
                except StopIteration as end:
                    completion: Completion = end.value
                    return completion
                yield piece
                stage = "decode"

    def _saw(self, prompt: Prompt, completion: Completion) -> None:
        if reading := self._clock.reading:
            reading.saw(prompt, completion)


class Salted(Wrapper):
    """Each prompt goes out with a salt: a backbone that keeps prefixes finds only those of the same salt again.

    A salt that never comes twice makes every call find the cache empty; one of its own keeps two runs apart.
    """

    def __init__(self, inner: LLM, salt: Callable[[], str]) -> None:
        super().__init__(inner)
        self._salt = salt

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return super().generate([self._salted(prompt) for prompt in prompts])

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        return super().stream(self._salted(prompt))

    def _salted(self, prompt: Prompt) -> Prompt:
        return salted(prompt, self._salt())


def salted(prompt: Prompt, salt: str) -> Prompt:
    """The prompt with this salt, unless it has one."""
    return prompt if "cache_salt" in prompt.extra else replace(prompt, extra={**prompt.extra, "cache_salt": salt})
