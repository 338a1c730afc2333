"""Collection of a teacher's outputs: everything it is asked while a system reads conversations, in files by stage.

Wraps the LLM of each piece of work and depends on neither the system nor the data. A prompt that was collected before
is not written again, so an interrupted collection can be repeated.
"""

import threading
from collections import Counter
from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from finetune.traces.trace import Teacher, Trace, make_trace, open_traces, stage_of
from localmem.evaluation.answers import Work
from localmem.files import JsonlLog
from localmem.llm.base import LLM
from localmem.llm.wrappers import Recorder
from localmem.prompts import load
from localmem.types import Completion, Prompt


class Collector:
    """Writes traces into `folder`, one file for each stage; to be used with `with`. `stages`, if any, selects stages.

    `counts` gives the number of new traces by stage, and of those collected before as "STAGE: duplicate".
    """

    def __init__(self, folder: Path, teacher: Teacher, stages: Collection[str] = ()) -> None:
        self._folder, self._teacher, self._stages = folder, teacher, frozenset(stages)
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._logs: dict[str, JsonlLog[Trace]] = {}
        self._ids: dict[str, set[str]] = {}
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> "Collector":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def wrap(self, llm: LLM, work: Work) -> LLM:
        """The LLM with its answers recorded as traces of this work."""
        return Recorder(llm, partial(self._record, work))

    def add(self, stage: str, trace: Trace) -> None:
        """Write the trace unless it was collected before."""
        with self._lock:
            log = self._open(stage)
            if trace.id in self._ids[stage]:
                self.counts[f"{stage}: duplicate"] += 1
                return
            self._ids[stage].add(trace.id)
            log.append(trace)
            self.counts[stage] += 1

    def _record(self, work: Work, prompt: Prompt, completion: Completion, _time: float) -> None:
        stage = stage_of(prompt.name)
        if not self._stages or stage in self._stages:
            self.add(stage, make_trace(prompt, completion, load(prompt.name).digest, self._teacher, work))

    def _open(self, stage: str) -> JsonlLog[Trace]:
        if stage not in self._logs:
            self._logs[stage] = log = self._stack.enter_context(open_traces(self._folder, stage))
            self._ids[stage] = {trace.id for trace in log.records}
        return self._logs[stage]
