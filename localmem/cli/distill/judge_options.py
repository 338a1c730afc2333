"""What the commands of `localmem distill` share of judges: the options, the bench, opinions that are kept."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from localmem.cli.eval.judge import bench_of
from localmem.cli.options import note

if TYPE_CHECKING:
    from tqdm import tqdm

    from finetune.traces.filtering import Reason
    from finetune.traces.trace import Trace
    from localmem.config import Settings
    from localmem.evaluation.judgements import Bench

UNCALIBRATED = "not calibrated on this model; run `localmem eval calibrate` before you believe it"


def judge_options(command: Callable[..., object]) -> Callable[..., object]:
    """--judge, --by."""
    for option in (
        click.option(
            "--by", default="score", show_default=True, help="With --judge: score, rating, entailment, correct."
        ),
        click.option("--judge", help="Ask this model what it thinks of the answers, too.", metavar="MODEL"),
    ):
        command = option(command)
    return command


def bench_for(settings: "Settings", by: str, stack: ExitStack) -> "Bench":
    """The judge on the settings' backbone; what is known of it is told."""
    from finetune.traces.judge_scores import judge_of_answers
    from localmem import factory

    judge = judge_of_answers(by)
    backbone = factory.backbone(settings, note)
    stack.callback(backbone.close)
    bench = bench_of(judge, settings, backbone.llm)
    note(f"judge {by} on {settings.model}: {line_of(bench)}")
    return bench


def line_of(bench: "Bench") -> str:
    """How far the judge can be believed."""
    return bench.calibration.line if bench.calibration else UNCALIBRATED


class Opinions:
    """A judge's scores of a collection's answers, asked as they are needed and kept in the collection."""

    def __init__(self, settings: "Settings", by: str, folder: Path, stack: ExitStack) -> None:
        self._bench, self._folder = bench_for(settings, by, stack), folder
        self._asked: Counter[str] = Counter()

    def against(self, traces: "Sequence[Trace]", stage: str, least: float) -> "Callable[[Trace], Reason | None]":
        """What speaks against a trace: a score below `least`, or none."""
        from finetune.traces.filtering import wrong_with
        from finetune.traces.judge_scores import opinions_in, scores_of

        fitting = [trace for trace in traces if wrong_with(trace, stage) is None]
        with opinions_in(self._folder, stage) as kept, _bar(len(fitting), stage) as bar:
            scores = scores_of(self._bench, fitting, kept, track=bar.update)
        self._asked["judged"] += len(fitting)

        def reason(trace: "Trace") -> "Reason | None":
            score = scores.get(trace.id)
            if score is None:
                return "the judge gave no score"
            return f"the judge gave less than {least:g}" if score < least else None

        return reason

    def told(self, least: float | None) -> dict[str, object]:
        """Who judged, by what, and how far that can be believed."""
        bench = self._bench
        return {
            "judge": bench.judge.name,
            "model": bench.model,
            "least": least,
            "answers": self._asked["judged"],
            "calibration": line_of(bench),
        }


def _bar(total: int, stage: str) -> "tqdm[NoReturn]":
    from tqdm import tqdm

    return tqdm(total=total, desc=f"judging {stage}", unit="answer", disable=None)
