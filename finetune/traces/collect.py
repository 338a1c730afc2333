"""Collecting a teacher's outputs: everything it is asked while a system reads conversations goes into files by stage.

Stands around the LLM of each piece of work and knows neither the system nor the data. What was collected once is not
written again, so that a collection that broke off is simply gone on with.
"""

import threading
from collections import Counter
from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from finetune.traces.trace import Teacher, Trace, stage_of, trace_of, traces_in
from localmem.evaluation.answers import Work
from localmem.llm.base import LLM
from localmem.llm.wrappers import Recorder
from localmem.prompts import load
from localmem.files import JsonlLog
from localmem.types import Completion, Prompt


class Collector:
    """Files of traces in `folder`, one a stage; to be used with `with`. Only `stages` are kept, if any are named."""

    def __init__(self, folder: Path, teacher: Teacher, stages: Collection[str] = ()) -> None:
        self._folder, self._teacher, self._stages = folder, teacher, frozenset(stages)
        self._guard = threading.Lock()
        self._open = ExitStack()
        self._files: dict[str, JsonlLog[Trace]] = {}
        self._known: dict[str, set[str]] = {}
        self.counted: Counter[str] = Counter()

    def __enter__(self) -> "Collector":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def around(self, llm: LLM, work: Work) -> LLM:
        """The LLM, whose answers are from now on kept as traces of this work."""
        return Recorder(llm, partial(self._take, work))

    def _take(self, work: Work, prompt: Prompt, completion: Completion, _time: float) -> None:
        stage = stage_of(prompt.name)
        if self._stages and stage not in self._stages:
            return
        self.add(stage, trace_of(prompt, completion, load(prompt.name).digest, self._teacher, work))

    def add(self, stage: str, trace: Trace) -> None:
        """Keeps the trace, unless the same was asked before."""
        with self._guard:
            file = self._file(stage)
            if trace.id in self._known[stage]:
                self.counted[f"{stage}: asked before"] += 1
                return
            self._known[stage].add(trace.id)
            file.append(trace)
            self.counted[stage] += 1

    def _file(self, stage: str) -> JsonlLog[Trace]:
        if stage not in self._files:
            self._files[stage] = file = self._open.enter_context(traces_in(self._folder, stage))
            self._known[stage] = {trace.id for trace in file.records}
        return self._files[stage]
