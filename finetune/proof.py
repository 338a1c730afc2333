"""The proof of a student: its answers, validity and speed beside its teacher's, its base's and two trivial rules'.

Scores are by gold, that is human answers, where the traces have them. Intervals draw whole conversations again. Depends
on functions that answer, not on where a model runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import fmean, median
from time import perf_counter

import numpy as np

from finetune.grading import Answer, ask_llm, score_answer
from finetune.traces.division import conversation_of
from finetune.traces.filtering import RESPOND, agrees_with, is_valid
from finetune.traces.trace import Trace
from localmem.errors import PartialFailure
from localmem.llm.base import LLM
from localmem.reporting.bootstrap import Ratio, cluster_mean, cluster_ratio
from localmem.reporting.intervals import Estimate, estimate
from localmem.reporting.provenance import MachineMonitor
from localmem.types import Completion, FreeText, Prompt

RATIO, RATIO_WITH_GOLD, VALID, FASTER = 0.97, 1.0, 0.995, 3.0
FEW = 30  # traces of a stage, or questions of people; fewer show nothing about a student
BATCH = 8  # prompts at once
_STREAMED = 16  # prompts whose first token is timed, at most


@dataclass(frozen=True, slots=True)
class Cost:
    """Answers a second one by one and `BATCH` at once, output tokens a second of both, first token, and peak memory."""

    single: float
    batched: float
    single_tokens: float
    batched_tokens: float
    first_token_ms: float | None
    memory_mib: float
    gpu_mib: float | None


@dataclass(frozen=True, slots=True)
class Measured:
    """What one model or rule did. `scores` are by trace, in order; `free` is the validity without the grammar."""

    kind: str
    name: str
    scores: tuple[float, ...]
    valid: float
    free: float | None = None
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that a student must reach. `value` is None where it cannot be computed, which fails."""

    name: str
    value: float | None
    needed: float
    above: bool = False

    @property
    def holds(self) -> bool:
        """Whether it is reached, or with `above` exceeded."""
        return self.value is not None and (self.value > self.needed if self.above else self.value >= self.needed)

    @property
    def requirement(self) -> str:
        """What the value must be."""
        return f"{'more than' if self.above else 'at least'} {self.needed:.3g}"

    def line(self) -> str:
        """The criterion in a few words."""
        value = "unknown" if self.value is None else f"{self.value:.3g}"
        return f"{self.name}: {value} ({self.requirement} needed)"


def score_by_gold(completion: Completion, trace: Trace, stage: str) -> float:
    """An answer's score by the human answer; by the recorded one where there is none."""
    gold = trace.metadata.gold
    if stage == RESPOND and gold is not None:
        return float(completion.finish == "stop" and agrees_with(completion.text, gold))
    scores = score_answer(completion, trace, stage)
    return scores.score if scores.gold is None else scores.gold


def measure_rule(name: str, answer: Answer, stage: str, traces: Sequence[Trace]) -> Measured:
    """The scores of a rule."""
    completions = [answer(trace) for trace in traces]
    return _measure("rule", name, stage, traces, completions)


def measure_answers(
    kind: str, name: str, answer: Answer, stage: str, traces: Sequence[Trace], track: Callable[[int], object]
) -> Measured:
    """The scores and speed of a small model that answers traces one by one."""
    with MachineMonitor() as monitor:
        completions, seconds = _time_answers(answer, traces, track)
    rate = len(traces) / seconds
    usage = monitor.usage
    cost = Cost(rate, rate, 0.0, 0.0, None, usage.host_peak_mb, usage.device_peak_mb)
    return replace(_measure(kind, name, stage, traces, completions), cost=cost)


def measure_llm(
    kind: str, name: str, llm: LLM, stage: str, traces: Sequence[Trace], track: Callable[[int], object]
) -> Measured:
    """The scores of a chat model, its validity with and without the grammar, and its speed alone and in batches."""
    ask = ask_llm(llm)
    ask(traces[0])  # the first answer compiles and allocates
    with MachineMonitor() as monitor:
        completions, alone = _time_answers(ask, traces, track)
        prompts = [trace.prompt() for trace in traces]
        start = perf_counter()
        batched = _generate(llm, prompts)
        together = perf_counter() - start
        track(len(traces))
        first = median(first_token(llm, prompt) for prompt in prompts[:_STREAMED])
        free = _free_validity(llm, traces)
        track(len(traces))
    usage = monitor.usage
    cost = Cost(
        len(traces) / alone,
        len(traces) / together,
        _tokens(completions) / alone,
        _tokens(batched) / together,
        1000 * first,
        usage.host_peak_mb,
        usage.device_peak_mb,
    )
    return replace(_measure(kind, name, stage, traces, completions), free=free, cost=cost)


def first_token(llm: LLM, prompt: Prompt) -> float:
    """Seconds until the first piece of an answer."""
    start = perf_counter()
    pieces = llm.stream(prompt)
    try:
        next(pieces, None)
        return perf_counter() - start
    finally:
        pieces.close()


def _time_answers(
    answer: Answer, traces: Sequence[Trace], track: Callable[[int], object]
) -> tuple[list[Completion], float]:
    completions, start = [], perf_counter()
    for trace in traces:
        completions.append(answer(trace))
        track(1)
    return completions, perf_counter() - start


def _tokens(completions: Sequence[Completion]) -> int:
    return sum(completion.usage.output for completion in completions)


def _generate(llm: LLM, prompts: Sequence[Prompt]) -> list[Completion]:
    """An answer to each prompt, `BATCH` at once; one that breaks its format is empty."""
    answers: list[Completion] = []
    for place in range(0, len(prompts), BATCH):
        try:
            answers += llm.generate(prompts[place : place + BATCH])
        except PartialFailure as failure:
            answers += [item if isinstance(item, Completion) else Completion("", "length") for item in failure.results]
    return answers


def _free_validity(llm: LLM, traces: Sequence[Trace]) -> float:
    """The share of valid answers when nothing holds the model to the format."""
    answers = _generate(llm, [replace(trace.prompt(), format=FreeText()) for trace in traces])
    return fmean(_is_valid(answer, trace) for answer, trace in zip(answers, traces, strict=True))


def _is_valid(completion: Completion, trace: Trace) -> bool:
    text = completion.text.strip()
    return completion.finish == "stop" and bool(text) and is_valid(text, trace)


def _measure(kind: str, name: str, stage: str, traces: Sequence[Trace], completions: Sequence[Completion]) -> Measured:
    pairs = list(zip(completions, traces, strict=True))
    scores = tuple(score_by_gold(completion, trace, stage) for completion, trace in pairs)
    return Measured(kind, name, scores, fmean(_is_valid(completion, trace) for completion, trace in pairs))


def estimate_score(measured: Measured, traces: Sequence[Trace]) -> Estimate:
    """The mean score, with the interval over conversations."""
    return estimate(measured.scores, [conversation_of(trace) for trace in traces])


def estimate_ratio(student: Measured, teacher: Measured, traces: Sequence[Trace]) -> Ratio | None:
    """The student's mean score over the teacher's; None where the teacher has none right.

    The interval has no upper end where the teacher has none right in some resamples.
    """
    if not any(teacher.scores):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = cluster_ratio(_score_by_session(teacher, traces), _score_by_session(student, traces), cluster_mean)
    low, high = (end if end is None or isfinite(end) else None for end in (ratio.low, ratio.high))
    return Ratio(ratio.ratio, low, high)


def _score_by_session(measured: Measured, traces: Sequence[Trace]) -> list[tuple[tuple[str, str], float]]:
    return [(conversation_of(trace), score) for trace, score in zip(traces, measured.scores, strict=True)]


def list_criteria(
    models: Mapping[str, Measured], rules: Sequence[Measured], traces: Sequence[Trace]
) -> list[Criterion]:
    """What the student must reach beside its teacher, and beyond the better rule.

    Where the lessons were compared with gold it must be as good as the teacher, who was not.
    """
    student, teacher = models["student"], models["teacher"]
    ratio = estimate_ratio(student, teacher, traces)
    needed = RATIO_WITH_GOLD if any(trace.metadata.gold is not None for trace in traces) else RATIO
    best = max(rules, key=lambda rule: fmean(rule.scores))
    criteria = [
        Criterion("score divided by the teacher's", ratio.ratio if ratio else None, needed),
        Criterion(f"score, against the rule {best.name!r}", fmean(student.scores), fmean(best.scores), above=True),
        Criterion("valid answers", student.valid if student.free is None else min(student.valid, student.free), VALID),
    ]
    if student.cost and teacher.cost:
        criteria.append(_speed_criterion(student.cost, teacher.cost))
    return criteria


def _speed_criterion(student: Cost, teacher: Cost) -> Criterion:
    """By tokens, for short answers alone are no speed; by answers where a small model writes no tokens."""
    if student.batched_tokens and teacher.batched_tokens:
        return Criterion("tokens/s divided by the teacher's", student.batched_tokens / teacher.batched_tokens, FASTER)
    return Criterion("answers/s divided by the teacher's", student.batched / teacher.batched, FASTER)
