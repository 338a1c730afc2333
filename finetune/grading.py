"""Grading of students: their answers to held-out traces compared with the teacher's, by a score that fits the stage.

Choices are compared for equality, segments by SeCom's Score, texts by ROUGE-L and facts. If traces carry gold answers,
all answers are compared with these, too, the teacher's included. Does not depend on how a student produces answers.
"""

import ctypes
import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

from finetune.traces.filtering import TEXT_STAGES, FactScores, groundedness, is_valid, score_facts, texts_of
from finetune.traces.trace import Trace
from localmem.benchmark.load import percentiles
from localmem.errors import BadReply
from localmem.evaluation.datasets.segmented_dialogues import agreement
from localmem.evaluation.metrics.text import rouge
from localmem.llm.base import LLM
from localmem.reporting.intervals import Estimate, estimate
from localmem.reporting.provenance import MachineMonitor
from localmem.segmentation.segmenters import read_ends, segments_between
from localmem.types import Completion, Message

SEGMENT = "segment"
_INTERVAL = 0.05  # seconds between measurements of the memory in use

Answer = Callable[[Trace], Completion]


class AnswerScores(NamedTuple):
    """One answer: similarity to the teacher's (0 to 1), whether its format is valid, its groundedness.

    `gold` is the similarity to the human answer, None if there is none; `facts` are given for stages that write text.
    """

    score: float
    valid: bool
    grounded: float
    gold: float | None = None
    facts: FactScores | None = None


class Speed(NamedTuple):
    """Speed of single sequential calls, and the peak memory meanwhile of our processes and of all GPUs."""

    tokens_per_second: float
    p50_ms: float
    p95_ms: float
    memory_mib: float
    gpu_mib: float | None


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of a model on a stage. `what` names the measure whose mean is `score`, None for the teacher itself.

    `traces` hold the model's answers instead of the teacher's.
    """

    model: str
    what: str
    answers: int
    score: Estimate | None
    valid: float | None
    grounded: float
    gold: Estimate | None
    facts: FactScores | None
    speed: Speed | None
    traces: tuple[Trace, ...] = ()

    def row(self) -> dict[str, object]:
        """Plain values by column, without what was not measured."""
        cells: dict[str, object] = {"model": self.model, "what": self.what, "answers": self.answers}
        if self.score:
            cells |= {"score": self.score.mean, "low": self.score.low, "high": self.score.high}
        if self.gold:
            cells |= {"by gold": self.gold.mean}
        if self.valid is not None:
            cells["valid"] = self.valid
        cells["grounded"] = self.grounded
        if self.facts:
            cells |= {"fact precision": self.facts.precision, "fact recall": self.facts.recall}
        if self.speed:
            cells |= {name: value for name, value in self.speed._asdict().items() if name != "gpu_mib" or value}
        return cells


def grade(
    student: LLM | Answer, name: str, stage: str, traces: Sequence[Trace], *, track: Callable[[int], object]
) -> Grade:
    """Let the model answer these traces (at least one), one by one with the traces' own sampling, and measure it."""
    answer = student if callable(student) else ask_llm(student)
    completions: list[Completion] = []
    times: list[float] = []
    gc.collect()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)  # returns freed memory to the system, so that it does not count for the next model
    with MachineMonitor(_INTERVAL) as monitor:
        for trace in traces:
            start = perf_counter()
            completions.append(answer(trace))
            times.append(1000 * (perf_counter() - start))
            track(1)
    latency, usage = percentiles(times), monitor.usage
    tokens = sum(completion.usage.output for completion in completions)
    speed = Speed(1000 * tokens / sum(times), latency["p50"], latency["p95"], usage.host_peak_mb, usage.device_peak_mb)
    scores = [score_answer(completion, trace, stage) for completion, trace in zip(completions, traces, strict=True)]
    answers = [_with_answer(trace, completion.text) for trace, completion in zip(traces, completions, strict=True)]
    score = estimate([answer.score for answer in scores])
    return _make_grade(name, stage, answers, scores, score, [answer.valid for answer in scores], speed)


def grade_teacher(stage: str, traces: Sequence[Trace], collected: Sequence[Trace]) -> Grade:
    """Grade the teacher's stored answers; `collected` are those before filtering, which show how many are valid.

    There is no score, because the teacher's similarity to itself measures nothing; the one to gold does.
    """
    name = ", ".join(sorted({trace.metadata.teacher for trace in traces}))
    scores = [score_answer(Completion(trace.answer), trace, stage) for trace in traces]
    valid = [trace.metadata.finish == "stop" and _is_usable(trace.answer, trace, stage) for trace in collected]
    return _make_grade(name, stage, traces, scores, None, valid, None)


def _make_grade(
    name: str,
    stage: str,
    traces: Sequence[Trace],
    scores: Sequence[AnswerScores],
    score: Estimate | None,
    valid: Sequence[bool],
    speed: Speed | None,
) -> Grade:
    gold = [answer.gold for answer in scores if answer.gold is not None]
    facts = [answer.facts for answer in scores if answer.facts]
    return Grade(
        model=name,
        what=measure_name(stage, traces[0]),
        answers=len(traces),
        score=score,
        valid=fmean(valid) if valid else None,
        grounded=fmean(answer.grounded for answer in scores),
        gold=estimate(gold) if gold else None,
        facts=FactScores(*(fmean(column) for column in zip(*facts, strict=True))) if facts else None,
        speed=speed,
        traces=tuple(traces),
    )


def ask_llm(llm: LLM) -> Answer:
    """Ask a chat model as the teacher was asked; an answer that is cut off within its JSON counts as empty."""

    def answer(trace: Trace) -> Completion:
        try:
            return llm.generate([trace.prompt()])[0]
        except BadReply:
            return Completion("", "length")

    return answer


def score_answer(completion: Completion, trace: Trace, stage: str) -> AnswerScores:
    """Compare one answer with the teacher's and with gold."""
    text, gold = completion.text, trace.metadata.gold
    usable = completion.finish == "stop" and _is_usable(text, trace, stage)
    facts = None
    if stage in TEXT_STAGES:
        facts = score_facts(text, trace.answer if gold is None else gold, trace.context_text)
    score = _similarity(text, trace, stage) if usable else 0.0
    by_gold = None if gold is None else _similarity(text, _with_answer(trace, gold), stage) if usable else 0.0
    return AnswerScores(score, usable, groundedness(_with_answer(trace, text)), by_gold, facts)


def measure_name(stage: str, trace: Trace) -> str:
    """The name of a stage's score."""
    if trace.metadata.options:
        return "agreement"
    return "segmentation score" if stage == SEGMENT else "ROUGE-L"


def read_segments(answer: str) -> list[range] | None:
    """The segments of an answer as ranges of exchanges, or None if it is not a segmentation."""
    ends = read_ends(answer)
    return segments_between({end + 1 for end in ends}, max(ends) + 1) if ends else None


def _with_answer(trace: Trace, text: str) -> Trace:
    return replace(trace, messages=(*trace.context, Message("assistant", text)))


def _is_usable(text: str, trace: Trace, stage: str) -> bool:
    if stage == SEGMENT and not trace.metadata.options and read_segments(text) is None:
        return False
    return is_valid(text, trace)


def _similarity(text: str, trace: Trace, stage: str) -> float:
    if trace.metadata.options:
        return float(text == trace.answer)
    if stage == SEGMENT:
        expected, predicted = read_segments(trace.answer), read_segments(text)
        if not expected or predicted is None:
            return 0.0
        count = max(segment.stop for segment in expected)
        starts = [{segment.start for segment in segments} for segments in (expected, predicted)]
        return agreement(*(segments_between(numbers, count) for numbers in starts)).score
    prediction, reference = ("\n".join(texts_of(answer)) for answer in (text, trace.answer))
    return rouge([prediction], [reference], ["rougeL"])["rougeL"][0]
