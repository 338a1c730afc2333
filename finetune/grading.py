"""What a student is worth: its answers to held-out traces beside the teacher's, by a score that fits the stage.

A choice is right or wrong; segments are scored as SeCom scores them; a text by its words and its facts. Where a trace
carries gold, answers are compared with that, too, the teacher's among them. Knows a student by how it is asked.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

from finetune.footprint import give_back
from finetune.groundedness import Facts, facts, texts_of
from finetune.traces.filtering import TEXTS, grounded, valid
from finetune.traces.trace import Trace
from localmem.benchmark.latency.machine_state import Watch
from localmem.benchmark.load import percentiles
from localmem.errors import BadReply
from localmem.evaluation.metrics.segmentation import agreement
from localmem.evaluation.metrics.text import rouge
from localmem.llm.base import LLM
from localmem.reporting.bootstrap import Estimate, estimate
from localmem.segmentation.segmenters import between
from localmem.types import Choice, Completion, FreeText, JsonSchema, Message, Prompt

SEGMENT = "segment"
_LOOK = 0.05  # seconds between looks at the memory in use

Ask = Callable[[Trace], Completion]


class Measured(NamedTuple):
    """One answer: how near it is to the teacher's (0 to 1), whether it is of its format, how much of it was told.

    `gold` is how near it is to what people say, None where they say nothing; `facts` are those of a text.
    """

    score: float
    valid: bool
    grounded: float
    gold: float | None = None
    facts: Facts | None = None


class Speed(NamedTuple):
    """Of single calls, one after the other; and the peak of memory meanwhile, of our processes and of all GPUs."""

    tokens_per_second: float
    p50_ms: float
    p95_ms: float
    memory_mib: float
    gpu_mib: float | None


@dataclass(frozen=True, slots=True)
class Grade:
    """A model on a stage. `what` names the measure of which `score` is the mean; a teacher has none by itself.

    `said` are the traces with the model's answers in place of the teacher's.
    """

    model: str
    what: str
    answers: int
    score: Estimate | None
    valid: float | None
    grounded: float
    gold: Estimate | None
    facts: Facts | None
    speed: Speed | None
    said: tuple[Trace, ...] = ()

    def row(self) -> dict[str, object]:
        """Plain values by column; what was not measured is not there."""
        found: dict[str, object] = {"model": self.model, "what": self.what, "answers": self.answers}
        if self.score:
            found |= {"score": self.score.mean, "low": self.score.low, "high": self.score.high}
        if self.gold:
            found |= {"by gold": self.gold.mean}
        if self.valid is not None:
            found["valid"] = self.valid
        found["grounded"] = self.grounded
        if self.facts:
            found |= {"fact precision": self.facts.precision, "fact recall": self.facts.recall}
        if self.speed:
            found |= {name: value for name, value in self.speed._asdict().items() if name != "gpu_mib" or value}
        return found


def grade(
    student: LLM | Ask, name: str, stage: str, traces: Sequence[Trace], *, track: Callable[[int], object]
) -> Grade:
    """The model's answers to these traces (one at least), asked one by one; the prompts' own sampling holds."""
    ask = student if callable(student) else asking(student)
    answers: list[Completion] = []
    times: list[float] = []
    give_back()
    with Watch(_LOOK) as watch:
        for trace in traces:
            began = perf_counter()
            answers.append(ask(trace))
            times.append(1000 * (perf_counter() - began))
            track(1)
    found = percentiles(times)
    tokens = sum(answer.usage.output for answer in answers)
    seen = watch.seen
    speed = Speed(1000 * tokens / sum(times), found["p50"], found["p95"], seen.host_peak_mb, seen.device_peak_mb)
    measured = [measure(answer, trace, stage) for answer, trace in zip(answers, traces, strict=True)]
    return Grade(
        model=name,
        what=measure_of(stage, traces[0]),
        answers=len(traces),
        score=estimate([one.score for one in measured]),
        valid=fmean(one.valid for one in measured),
        grounded=fmean(one.grounded for one in measured),
        gold=_by_gold(measured),
        facts=_facts(measured),
        speed=speed,
        said=tuple(answered(trace, answer.text) for trace, answer in zip(traces, answers, strict=True)),
    )


def teacher(stage: str, traces: Sequence[Trace], whole: Sequence[Trace]) -> Grade:
    """The teacher's stored answers. `whole` are those before sifting, of which it is known whether they are valid.

    How near its answers are to themselves is no measurement; how near they are to gold is one.
    """
    measured = [measure(Completion(trace.answer), trace, stage) for trace in traces]
    right = [trace.metadata.finish == "stop" and _usable(trace.answer, trace, stage) for trace in whole]
    return Grade(
        model=", ".join(sorted({trace.metadata.teacher for trace in traces})),
        what=measure_of(stage, traces[0]),
        answers=len(traces),
        score=None,
        valid=fmean(right) if right else None,
        grounded=fmean(one.grounded for one in measured),
        gold=_by_gold(measured),
        facts=_facts(measured),
        speed=None,
        said=tuple(traces),
    )


def asking(llm: LLM) -> Ask:
    """A chat model is asked as the teacher was; an answer that its tokens cut off within JSON is an empty one."""

    def ask(trace: Trace) -> Completion:
        try:
            return llm.generate([prompt_of(trace)])[0]
        except BadReply:
            return Completion("", "length")

    return ask


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
        stop=about.stop,
        format=form,
    )


def measure(completion: Completion, trace: Trace, stage: str) -> Measured:
    """One answer against the teacher's, and against gold."""
    text, gold = completion.text, trace.metadata.gold
    right = completion.finish == "stop" and _usable(text, trace, stage)
    said = answered(trace, text)
    return Measured(
        _score(text, trace, stage) if right else 0.0,
        right,
        grounded(said),
        None if gold is None else _score(text, answered(trace, gold), stage) if right else 0.0,
        _facts_in(text, trace) if stage in TEXTS else None,
    )


def answered(trace: Trace, text: str) -> Trace:
    """The trace with another answer."""
    return replace(trace, messages=(*trace.asked, Message("assistant", text)))


def measure_of(stage: str, trace: Trace) -> str:
    """The name of a stage's score."""
    if trace.metadata.options:
        return "agreement"
    return "segmentation Score" if stage == SEGMENT else "ROUGE-L"


def _usable(text: str, trace: Trace, stage: str) -> bool:
    if stage == SEGMENT and not trace.metadata.options and _segments(text) is None:
        return False
    return valid(text, trace)


def _score(text: str, trace: Trace, stage: str) -> float:
    if trace.metadata.options:
        return float(text == trace.answer)
    if stage == SEGMENT:
        right, ours = _segments(trace.answer), _segments(text)
        if not right or ours is None:
            return 0.0
        count = 1 + max(last for _, last in right)
        starts = [{first for first, _ in one} for one in (right, ours)]
        return agreement(between(starts[0], count), between(starts[1], count)).score
    told, wanted = ("\n".join(texts_of(one)) for one in (text, trace.answer))
    return rouge([told], [wanted], ["rougeL"])["rougeL"][0]


def _segments(answer: str) -> list[tuple[int, int]] | None:
    """First and last exchange of each; None for what is no segmentation."""
    try:
        return [(int(item["first"]), int(item["last"])) for item in json.loads(answer)["segments"]]
    except (ValueError, KeyError, TypeError):
        return None


def _facts_in(text: str, trace: Trace) -> Facts:
    right = trace.answer if trace.metadata.gold is None else trace.metadata.gold
    return facts(text, right, "\n".join(message.content for message in trace.asked))


def _by_gold(measured: Sequence[Measured]) -> Estimate | None:
    found = [one.gold for one in measured if one.gold is not None]
    return estimate(found) if found else None


def _facts(measured: Sequence[Measured]) -> Facts | None:
    found = [one.facts for one in measured if one.facts]
    return Facts(*(fmean(column) for column in zip(*found, strict=True))) if found else None
