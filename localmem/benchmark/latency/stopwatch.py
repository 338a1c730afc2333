"""Times the stages of a request: one stopwatch per thread, and wrappers that start and stop it.

Parts are wrapped, never patched. A stage counts its own time only: what a part spends inside another wrapped part
belongs to that part's stage. On a thread that measures nothing the wrappers do nothing, so an index can be built in the
background.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar, cast

from localmem.llm.base import LLM
from localmem.llm.wrappers import PromptUsage, Wrapper, usage_of
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
    "reread": "store",
    "commit": "commit",
    "finish": "commit",
}


@dataclass(slots=True)
class Reading:
    """What one request has cost so far: milliseconds by stage, and calls and tokens by prompt name.

    Stages that begin after the last piece of the reply get the prefix `after:`.
    """

    start: float
    stages: dict[str, float] = field(default_factory=dict)
    calls: dict[str, PromptUsage] = field(default_factory=dict)
    prefix: str = ""
    nested_seconds: list[float] = field(default_factory=list)  # one entry per open stage: time of the stages inside it

    def add_time(self, stage: str, seconds: float) -> None:
        """Add to a stage."""
        name = self.prefix + stage
        self.stages[name] = self.stages.get(name, 0.0) + 1000 * seconds

    def add_call(self, prompt: Prompt, completion: Completion) -> None:
        """Add one answered prompt."""
        self.calls[prompt.name] = self.calls.get(prompt.name, PromptUsage()).plus(usage_of(completion))


class Stopwatch:
    """One per run. `now` returns seconds; `stages` names the methods of parts that are stages."""

    stages: ClassVar[Mapping[str, str]] = STAGES

    def __init__(self, now: Now = time.perf_counter) -> None:
        self.now = now
        self._local = threading.local()

    @property
    def reading(self) -> Reading | None:
        """The request that this thread measures, if any."""
        return cast("Reading | None", getattr(self._local, "reading", None))

    @contextmanager
    def measure(self) -> Iterator[Reading]:
        """Measure one request on this thread."""
        reading = self._local.reading = Reading(self.now())
        try:
            yield reading
        finally:
            self._local.reading = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time inside as this stage, minus the time of stages within it."""
        reading = self.reading
        if reading is None:
            yield
            return
        start = self.now()
        reading.nested_seconds.append(0.0)
        try:
            yield
        finally:
            elapsed = self.now() - start
            reading.add_time(name, elapsed - reading.nested_seconds.pop())
            if reading.nested_seconds:
                reading.nested_seconds[-1] += elapsed

    def wrap(self, part: Part) -> Part:
        """The same part; those of its methods that are stages are timed."""
        return cast("Part", _TimedPart(part, self))


class _TimedPart:
    """Any part (encoder, retriever, journal ...), with the same attributes and the type of the part."""

    def __init__(self, part: object, stopwatch: Stopwatch) -> None:
        self._part = part
        self._stopwatch = stopwatch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the part has
        attribute = getattr(self._part, name)
        stage = self._stopwatch.stages.get(name)
        if stage is None:
            return attribute

        def call_timed(*args: object, **kwargs: object) -> object:
            with self._stopwatch.stage(stage):
                return attribute(*args, **kwargs)

        self.__dict__[name] = call_timed  # so that the next call does not come through __getattr__
        return call_timed


class TimedLLM(Wrapper):
    """A call is the stage `llm:<prompt name>`; a stream is the reply: `first_token`, then `decode`."""

    def __init__(self, inner: LLM, stopwatch: Stopwatch) -> None:
        super().__init__(inner)
        self._stopwatch = stopwatch

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if not prompts:
            return []
        with self._stopwatch.stage(f"llm:{prompts[0].name}"):
            return super().generate(prompts)

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        completion = yield from self._timed_pieces(self.inner.stream(prompt))
        self._on_answer(prompt, completion)
        if reading := self._stopwatch.reading:
            reading.prefix = AFTER
        return completion

    def _timed_pieces(self, pieces: Generator[str, None, Completion]) -> Generator[str, None, Completion]:
        """Only waiting for a piece counts; what the consumer does with it does not."""
        stage = "first_token"
        with closing(pieces):
            while True:
                try:
                    with self._stopwatch.stage(stage):
                        piece = next(pieces)
                except StopIteration as end:
                    completion: Completion = end.value
                    return completion
                yield piece
                stage = "decode"

    def _on_answer(self, prompt: Prompt, completion: Completion) -> None:
        if reading := self._stopwatch.reading:
            reading.add_call(prompt, completion)


class SaltedLLM(Wrapper):
    """Adds a cache salt to each prompt: the backbone reuses cached prefixes only between prompts of one salt.

    A salt per call makes every call find an empty cache; a salt per run keeps two runs apart.
    """

    def __init__(self, inner: LLM, new_salt: Callable[[], str]) -> None:
        super().__init__(inner)
        self._new_salt = new_salt

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return super().generate([self._with_salt(prompt) for prompt in prompts])

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        return super().stream(self._with_salt(prompt))

    def _with_salt(self, prompt: Prompt) -> Prompt:
        salt = self._new_salt()
        return prompt if "cache_salt" in prompt.extra else replace(prompt, extra={**prompt.extra, "cache_salt": salt})
