"""What a student is worth: its answers to held-out traces beside the teacher's, by a score that fits the stage.

A choice is right or wrong; segments are scored as SeCom scores them; a text by its words. Knows an LLM by its contract.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

from finetune.sift import grounded, valid
from finetune.traces import Trace
from localmem.benchmark.load import percentiles
from localmem.evaluation.metrics.bootstrap import Estimate, estimate
from localmem.evaluation.metrics.text import rouge
from localmem.llm.base import LLM
from localmem.text.agreement import agreement
from localmem.text.segment import between
from localmem.types import Choice, Completion, FreeText, JsonSchema, Message, Prompt

SEGMENT = "segment"


class Measured(NamedTuple):
    """One answer: how near it is to the teacher's (0 to 1), whether it is of its format, how much of it was told."""

    score: float
    valid: bool
    grounded: float


@dataclass(frozen=True, slots=True)
class Grade:
    """A model on a stage. `what` names the measure of which `score` is the mean; times are of single calls."""

    model: str
    what: str
    answers: int
    score: Estimate
    valid: float
    grounded: float
    tokens_per_second: float
    p50_ms: float
    p95_ms: float


def grade(llm: LLM, name: str, stage: str, traces: Sequence[Trace], *, track: Callable[[int], None]) -> Grade:
    """The model's answers to these traces (one at least), asked one by one; the prompts' own sampling holds."""
    measured: list[Measured] = []
    times: list[float] = []
    tokens = 0
    for trace in traces:
        began = perf_counter()
        (completion,) = llm.generate([prompt_of(trace)])
        times.append(1000 * (perf_counter() - began))
        tokens += completion.usage.output
        measured.append(measure(completion, trace, stage))
        track(1)
    found = percentiles(times)
    return Grade(
        model=name,
        what=measure_of(stage, traces[0]),
        answers=len(traces),
        score=estimate([one.score for one in measured]),
        valid=fmean(one.valid for one in measured),
        grounded=fmean(one.grounded for one in measured),
        tokens_per_second=1000 * tokens / sum(times),
        p50_ms=found["p50"],
        p95_ms=found["p95"],
    )


def prompt_of(trace: Trace) -> Prompt:
    """What the teacher was asked, to be asked again."""
    about = trace.metadata
    form = Choice(about.options) if about.options else JsonSchema(about.schema) if about.schema else FreeText()
    return Prompt(
        about.prompt,
        trace.asked,
        max_tokens=about.max_tokens,
        temperature=about.temperature,
        seed=about.seed,
        format=form,
    )


def measure(completion: Completion, trace: Trace, stage: str) -> Measured:
    """One answer against the teacher's."""
    text = completion.text
    said = Trace((*trace.asked, Message("assistant", text)), trace.metadata)
    right = completion.finish == "stop" and valid(text, trace)
    return Measured(_score(text, trace, stage) if right else 0.0, right, grounded(said))


def measure_of(stage: str, trace: Trace) -> str:
    """The name of a stage's score."""
    if trace.metadata.options:
        return "agreement"
    return "segmentation Score" if stage == SEGMENT else "ROUGE-L"


def _score(text: str, trace: Trace, stage: str) -> float:
    if trace.metadata.options:
        return float(text == trace.answer)
    if stage == SEGMENT:
        right, ours = _starts(trace.answer), _starts(text)
        count = 1 + max(item["last"] for item in json.loads(trace.answer)["segments"])
        return agreement(between(right, count), between(ours, count)).score
    return rouge([text], [trace.answer], ["rougeL"])["rougeL"][0]


def _starts(answer: str) -> set[int]:
    return {item["first"] for item in json.loads(answer)["segments"]}
