"""Collection of traces: everything that a teacher is asked and answers while systems read, in a file for each stage.

A prompt may be put to the teacher several times with other seeds; the system goes on with the first answer. Does not
depend on any system or data set.
"""

import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from finetune.traces.trace import ADAPTER, Teacher, Trace, check_stage, make_trace, stage_of
from localmem.evaluation.answers import Work
from localmem.files import JsonlLog
from localmem.llm.base import LLM
from localmem.llm.wrappers import Wrapper
from localmem.prompts import load
from localmem.types import Choice, Completion, Prompt

DUPLICATE = ": duplicate"  # ends the name of a stage in the counts of traces that were collected before


class Samples(NamedTuple):
    """How many answers to take to each prompt that is not a choice, the first as the system asks for it."""

    number: int = 1
    temperature: float = 0.8


@dataclass
class _Place:
    """Where a piece of work is in its conversation, with the human answers to its questions."""

    session: str = ""
    time: datetime | None = None
    golds: Mapping[str, str] = field(default_factory=dict)


class Collector:
    """Writes traces into `folder`, one file for each stage; to be used with `with`. `stages`, if any, selects stages.

    What was collected before is not written again, so an interrupted collection can be repeated. `counts` gives
    the number of new traces by stage, and of those collected before as "STAGE: duplicate". Raises BadInput for a stage
    that no prompt belongs to.
    """

    def __init__(
        self,
        folder: Path,
        teacher: Teacher,
        stages: Collection[str] = (),
        samples: Samples = Samples(),  # noqa: B008  # immutable
    ) -> None:
        for stage in stages:
            check_stage(stage)
        self._folder, self._teacher, self._stages, self._samples = folder, teacher, frozenset(stages), samples
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._logs: dict[str, JsonlLog[Trace]] = {}
        self._ids: dict[str, set[str]] = {}
        self._places: dict[Work, _Place] = {}
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> "Collector":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wrap(self, llm: LLM, work: Work) -> LLM:
        """The LLM with its answers recorded as traces of this work."""
        return _Collected(llm, self, work)

    def enter(self, work: Work, session: str, time: datetime, golds: Mapping[str, str]) -> None:
        """Note where the work is: what it is asked from now on belongs to this session.

        `golds` are human answers by question.
        """
        self._places[work] = _Place(session, time, golds)

    def samples(self, prompt: Prompt) -> list[Prompt]:
        """The prompts to ask after the first answer: none for choices, whose probabilities say more."""
        if not self._keeps(prompt) or isinstance(prompt.format, Choice):
            return []
        seeds = range(1, self._samples.number)
        return [replace(prompt, seed=seed, temperature=self._samples.temperature) for seed in seeds]

    def record(self, work: Work, prompt: Prompt, completion: Completion, seconds: float, sample: int = 0) -> None:
        """Write what was asked and answered, if the stage is collected."""
        if not self._keeps(prompt):
            return
        place, digest = self._places.get(work, _Place()), load(prompt.name).digest
        trace = make_trace(prompt, completion, digest, self._teacher, work, seconds=seconds, sample=sample)
        last = prompt.messages[-1].content
        gold = next((answer for question, answer in place.golds.items() if last.endswith(question)), None)
        about = replace(trace.metadata, session=place.session, time=place.time, gold=gold)
        self.add(stage_of(prompt.name), replace(trace, metadata=about))

    def add(self, stage: str, trace: Trace) -> None:
        """Write the trace unless it was collected before."""
        with self._lock:
            if stage not in self._logs:
                log = JsonlLog(self._folder / f"{stage}.jsonl", ADAPTER)
                self._logs[stage] = self._stack.enter_context(log)
                self._ids[stage] = {earlier.id for earlier in log.records}
            if trace.id in self._ids[stage]:
                self.counts[stage + DUPLICATE] += 1
                return
            self._ids[stage].add(trace.id)
            self._logs[stage].append(trace)
            self.counts[stage] += 1

    def _keeps(self, prompt: Prompt) -> bool:
        return not self._stages or stage_of(prompt.name) in self._stages


class _Collected(Wrapper):
    """Passes prompts on, and records the answers with the time that their call took."""

    def __init__(self, inner: LLM, collector: Collector, work: Work) -> None:
        super().__init__(inner)
        self._collector, self._work, self._call = collector, work, threading.local()

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self._call.start = perf_counter()
        completions = super().generate(prompts)
        for prompt in prompts:
            for number, again in enumerate(self._collector.samples(prompt), start=1):
                start = perf_counter()
                (completion,) = self.inner.generate([again])
                self._collector.record(self._work, again, completion, perf_counter() - start, number)
        return completions

    def _on_answer(self, prompt: Prompt, completion: Completion) -> None:
        self._collector.record(self._work, prompt, completion, perf_counter() - self._call.start)
