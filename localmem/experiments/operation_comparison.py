"""Bases and regimes side by side: each trained on folds of the operation data by seed, and judged on what was held out.

Every finished fold is a line of runs.jsonl, so an interrupted comparison goes on where it was. Knows no terminal.
"""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from time import perf_counter
from typing import NamedTuple

from finetune.cross_validation import Fold, folds, split
from finetune.operation_metrics import Pair, Said, endings, judge, to_ask
from localmem.evaluation.datasets.labelled_pairs import LabelledPair
from finetune.run_folder import digest
from finetune.trainers.operation_classifier import (
    NLI,
    Job,
    Lesson,
    Regime,
    at_fresh_rate,
    inferring,
    learn,
    operation_pairs,
)
from localmem.classification.pair_classifier import PairModel
from localmem.classification.pair_weights import config_of, labels_of
from localmem.classification.trained_classifier import classifier_of
from localmem.errors import BadInput
from localmem.reporting.provenance import machine, versions
from localmem.text.base import OPERATIONS, PairClassifier

_RUNS = "runs.jsonl"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is compared. `job` holds what all share; its base and regime do not count.

    A model of inference is trained once a base and shared by its folds and seeds; a T5 from nothing learns at
    `fresh_rate`, in inference and operations.
    """

    job: Job
    bases: Sequence[str | Path]
    regimes: Sequence[Regime]
    folds: int
    seeds: int
    fresh_rate: float


@dataclass(frozen=True, slots=True)
class Result:
    """One base and regime on one fold of one seed; the speed is that of a CPU or GPU as it was then, in batches."""

    base: str
    regime: str
    seed: int
    fold: int
    accuracy: float
    macro_f1: float
    set_f1: float
    confusion: list[list[int]]
    pairs_per_second: float
    bytes: int
    seconds: float


class Spread(NamedTuple):
    """Mean and standard deviation; the latter is 0 for one value."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(mean(values), stdev(values) if len(values) > 1 else 0.0)

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.deviation:.3f}"


@dataclass(frozen=True, slots=True)
class Row:
    """One base and regime over all folds of all seeds; `minutes` is the training of one fold, inference left out."""

    base: str
    regime: str
    runs: int
    accuracy: Spread
    macro_f1: Spread
    set_f1: Spread
    pairs_per_second: float
    megabytes: float
    minutes: float
    confusion: list[list[int]]

    def told(self) -> dict[str, str]:
        """As a line of a table shows it."""
        return {
            "base": self.base,
            "regime": self.regime,
            "accuracy": str(self.accuracy),
            "macro F1": str(self.macro_f1),
            "set F1": str(self.set_f1),
            "pairs/s": f"{self.pairs_per_second:.0f}",
            "MB": f"{self.megabytes:.0f}",
            "min a fold": f"{self.minutes:.1f}",
        }


def compare(wanted: Wanted, *, resume: bool = False, note: Callable[[str], None] = print) -> list[Row]:
    """Trains and judges what is wanted and not yet done, and returns one row for each base and regime."""
    out = wanted.job.out
    done = _done(out / _RUNS, resume=resume)
    pairs = operation_pairs(wanted.job.data)
    parts = {seed: folds(pairs, wanted.folds, seed) for seed in range(wanted.seeds)}  # fails before any training
    out.mkdir(parents=True, exist_ok=True)
    for base in wanted.bases:
        job = at_fresh_rate(replace(wanted.job, base=base), wanted.fresh_rate)
        for regime in wanted.regimes:
            start = _start(job, regime, note) if _missing(done, base, regime, parts) else base
            for seed, fold, part in _missing(done, base, regime, parts):
                note(f"{_name(base)}, {regime}: seed {seed}, fold {fold + 1} of {wanted.folds}")
                result = _one(job, regime, start, part, seed, fold, note)
                done.append(result)
                with (out / _RUNS).open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
    return [_row(done, _name(base), regime) for base in wanted.bases for regime in wanted.regimes]


def _done(path: Path, *, resume: bool) -> list[Result]:
    if not path.is_file():
        return []
    if not resume:
        raise BadInput(f"{path.parent} holds a comparison; go on with --resume, or give another --out")
    return [Result(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def _missing(
    done: Sequence[Result], base: str | Path, regime: Regime, parts: dict[int, list[Fold]]
) -> list[tuple[int, int, Fold]]:
    known = {(result.base, result.regime, result.seed, result.fold) for result in done}
    return [
        (seed, number, part)
        for seed, held in parts.items()
        for number, part in enumerate(held)
        if (_name(base), regime, seed, number) not in known
    ]


def _start(job: Job, regime: Regime, note: Callable[[str], None]) -> str | Path:
    """What a fold begins with. A model of inference that is there already is used again."""
    if regime == "scratch":
        return job.base
    return inferring(job, job.out / NLI / _name(job.base).replace(":", "-"), resume=True, note=note)


def _one(
    job: Job, regime: Regime, start: str | Path, part: Fold, seed: int, fold: int, note: Callable[[str], None]
) -> Result:
    folder = job.out / f"{_name(job.base).replace(':', '-')}-{regime}-{seed}-{fold}"
    seconds = 0.0
    if regime != "zero-shot":
        plan = replace(job.plan, seed=seed)
        inner = split(part.train, job.share, seed)
        lesson = Lesson(OPERATIONS, inner, plan, job.data, "Memory operations", folder)
        seconds = learn(start, lesson, job, resume=True, note=note).seconds
    model = folder if regime != "zero-shot" else Path(start)
    said, speed = answers(classifier(model), part.held_out)
    verdict = judge(part.held_out, said)
    size = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    shutil.rmtree(folder, ignore_errors=True)
    return Result(
        base=_name(job.base),
        regime=regime,
        seed=seed,
        fold=fold,
        accuracy=verdict.accuracy,
        macro_f1=verdict.macro_f1,
        set_f1=verdict.set_f1,
        confusion=verdict.confusion,
        pairs_per_second=speed,
        bytes=size,
        seconds=seconds,
    )


def write(rows: Sequence[Row], wanted: Wanted) -> None:
    """comparison.json and comparison.md: the rows, the confusion of each, and what makes them again."""
    job = wanted.job
    report = {
        "command": job.command,
        "folds": wanted.folds,
        "seeds": wanted.seeds,
        "plan": asdict(job.plan),
        "nli_plan": asdict(job.nli_plan),
        "fresh_rate": wanted.fresh_rate,
        "window": job.window,
        "balance": job.balance,
        "apart": job.apart,
        "data": {path.name: digest(path) for path in (*job.data, *job.nli, *job.nli_valid)},
        "labels": OPERATIONS,
        "rows": [asdict(row) for row in rows],
        "machine": machine(job.out),
        "versions": versions(),
    }
    (job.out / "comparison.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (job.out / "comparison.md").write_text(_markdown(rows, wanted), encoding="utf-8")


def _markdown(rows: Sequence[Row], wanted: Wanted) -> str:
    from tabulate import tabulate

    table = tabulate([row.told() for row in rows], headers="keys", tablefmt="github", disable_numparse=True)
    matrices = [
        f"{row.base}, {row.regime} (rows are the truth):\n\n"
        + tabulate(
            [[name, *cells] for name, cells in zip(OPERATIONS, row.confusion, strict=True)],
            headers=["", *OPERATIONS],
            tablefmt="github",
        )
        for row in rows
    ]
    runs = f"{wanted.folds} folds by group, {wanted.seeds} seed{'s' if wanted.seeds > 1 else ''}; ± is over the folds."
    return "\n\n".join([f"`{wanted.job.command}`", runs, table, *matrices]) + "\n"


def classifier(folder: Path) -> PairClassifier:
    """The trained model in a folder, whatever it was trained for."""
    return classifier_of(labels_of(config_of(folder)), PairModel(folder))


def answers(judged: PairClassifier, pairs: Sequence[LabelledPair]) -> tuple[Said, float]:
    """What it says of all that `judge` wants to know, in one batch, and how many pairs a second that were."""
    asked: list[Pair] = to_ask(endings(pairs))
    judged.classify(asked[:1])  # loads what there is to load
    began = perf_counter()
    labels = judged.classify(asked)
    seconds = perf_counter() - began
    return {pair: label.operation for pair, label in zip(asked, labels, strict=True)}, len(asked) / seconds


def _row(done: Sequence[Result], base: str, regime: str) -> Row:
    runs = [result for result in done if (result.base, result.regime) == (base, regime)]
    confusion = [
        [sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*(r.confusion for r in runs), strict=True)
    ]
    return Row(
        base=base,
        regime=regime,
        runs=len(runs),
        accuracy=Spread.of([run.accuracy for run in runs]),
        macro_f1=Spread.of([run.macro_f1 for run in runs]),
        set_f1=Spread.of([run.set_f1 for run in runs]),
        pairs_per_second=mean(run.pairs_per_second for run in runs),
        megabytes=runs[0].bytes / 1e6,
        minutes=mean(run.seconds for run in runs) / 60,
        confusion=confusion,
    )


def _name(base: str | Path) -> str:
    return base.name if isinstance(base, Path) else base
