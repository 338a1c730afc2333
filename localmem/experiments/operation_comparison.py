"""Cross-validated comparison of base models and training regimes for classifiers of memory operations.

Every finished fold is a line of runs.jsonl, so an interrupted comparison resumes there, with the same training. Prints
nothing.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from pydantic import Field, TypeAdapter

from finetune import resuming
from finetune.operation_pairs import Fold, hold_out, make_folds
from finetune.run_folder import hash_files
from finetune.trainers.operation_classifier import (
    NLI,
    OperationRecipe,
    PairLesson,
    Regime,
    operation_files,
    prepare_inference_model,
    read_operation_pairs,
    train_pairs,
    use_fresh_rate,
)
from finetune.trainers.pair_trainers import FRESH
from finetune.trainers.training import REPORT, TrainingJob, base_folder, has_begun, update_recipe
from localmem.classification import OPERATIONS, PairClassifier
from localmem.classification.pair_classifier import PairModel, classifier_of, config_of, labels_of
from localmem.errors import BadInput
from localmem.experiments.operation_evaluation import OperationScores, classify_pairs, confusion_table, score_operations
from localmem.experiments.runs import ExperimentRecipe
from localmem.files import JsonlLog, write_atomic, write_json
from localmem.reporting.provenance import machine, versions
from localmem.reporting.sections import Table, markdown_table

Row = dict[str, Any]

RUNS = "runs.jsonl"
_SCORES = {"accuracy": "accuracy", "macro F1": "macro_f1", "set F1": "set_f1"}  # by column


class OperationComparisonRecipe(ExperimentRecipe):
    """Recipe of `localmem finetune compare-operations`."""

    bases: tuple[str, ...] = ("minilm-l6-v2",)
    """Base model to compare, by name or folder; t5:tiny, t5:mini, t5:small: a randomly initialised T5."""
    regimes: tuple[Regime, ...] = ("scratch",)
    """Regime to compare: operations only; inference only; or inference, then operations."""
    folds: int = Field(5, ge=2)
    """Number of folds, divided by group."""
    seeds: int = Field(1, ge=1)
    """Number of divisions, each with its own trainings."""
    training: OperationRecipe = OperationRecipe()
    """How each model is trained."""


class _FoldRecipe(OperationRecipe):
    """What all folds of a comparison must have in common."""

    folds: int
    """Number of folds."""


@dataclass(frozen=True, slots=True)
class FoldResult:
    """One base and regime on one fold of one seed; the speed is measured in batches on the current machine."""

    base: str
    regime: str
    seed: int
    fold: int
    scores: OperationScores
    pairs_per_second: float
    bytes: int
    seconds: float


def compare_operations(job: TrainingJob[OperationComparisonRecipe]) -> list[Row]:
    """Train and score what the job's folder does not hold yet; return one row for each base and regime.

    Scores are pairs of mean and standard deviation over the folds of all seeds (0 for a single fold), and `minutes` is
    the training of one fold without inference. An inference model is trained once for each base and shared by its folds
    and seeds. Further bases, regimes and seeds may join. Writes comparison.json and comparison.md. Raises BadInput.
    """
    recipe = job.recipe
    pairs = read_operation_pairs(recipe.training)
    folds = [
        (seed, number, fold)
        for seed in range(recipe.seeds)
        for number, fold in enumerate(make_folds(pairs, recipe.folds, seed))
    ]
    _claim(job)
    with JsonlLog(job.out / RUNS, TypeAdapter(FoldResult)) as log:
        results = list(log.records)
        for base in recipe.bases:
            training = TrainingJob(
                update_recipe(recipe.training, base=base), job.out, notify=job.notify, command=job.command
            )
            for result in _missing_folds(use_fresh_rate(training), recipe, folds, results):
                log.append(result)
                results.append(result)
    rows = [_summarise(results, _base_name(base), regime) for base in recipe.bases for regime in recipe.regimes]
    _write_report(job, rows)
    return rows


def _claim(job: TrainingJob[OperationComparisonRecipe]) -> None:
    """Make the job's folder that of this comparison. Raises BadInput if it holds one that this does not continue."""
    training = job.recipe.training
    shared = training.model_dump(exclude={"base", "regime", "seed"})
    recipe = _FoldRecipe.model_validate({**shared, "data": operation_files(training), "folds": job.recipe.folds})
    if job.resume and not (job.out / resuming.FILE).is_file():
        raise BadInput(
            f"no comparison began in {job.out}: it has no {resuming.FILE}; leave out --resume to begin one, or give "
            "the --out of an interrupted one"
        )
    if not (job.out / RUNS).is_file():
        resuming.record_beginning(job.out, recipe, None, "")
    elif job.resume:
        resuming.compare_beginning(job.out, recipe, None, "")
    else:
        raise BadInput(f"{job.out} holds a comparison; use --resume, or choose another --out")


def load_classifier(folder: Path) -> PairClassifier:
    """The trained model in a folder, as a classifier of operations."""
    return classifier_of(labels_of(config_of(folder)), PairModel(folder))


def _missing_folds(
    job: TrainingJob[OperationRecipe],
    recipe: OperationComparisonRecipe,
    folds: Sequence[tuple[int, int, Fold]],
    results: Sequence[FoldResult],
) -> Iterator[FoldResult]:
    """The results of one base that are not in `results`, as they are made."""
    name = _base_name(job.recipe.base)
    finished = {(result.base, result.regime, result.seed, result.fold) for result in results}
    for regime in recipe.regimes:
        missing = [item for item in folds if (name, regime, *item[:2]) not in finished]
        if not missing:
            continue
        start = job.recipe.base
        if regime != "scratch":
            start = prepare_inference_model(_in_folder(job, job.out / NLI / name.replace(":", "-")))
        for seed, number, fold in missing:
            job.notify(f"{name}, {regime}: seed {seed}, fold {number + 1} of {recipe.folds}")
            out = job.out / f"{name.replace(':', '-')}-{regime}-{seed}-{number}"
            fold_recipe = update_recipe(job.recipe, regime=regime, seed=seed)
            scores = _run_fold(_in_folder(job.with_recipe(fold_recipe), out), start, fold)
            yield FoldResult(name, regime, seed, number, *scores)


def _in_folder(job: TrainingJob[OperationRecipe], out: Path) -> TrainingJob[OperationRecipe]:
    """The job in this folder, where it resumes a training that has begun."""
    return replace(job, out=out, resume=has_begun(out))


def _run_fold(job: TrainingJob[OperationRecipe], start: str, fold: Fold) -> tuple[OperationScores, float, int, float]:
    """Scores, pairs a second, bytes of the weights, and seconds of training."""
    recipe, seconds, model = job.recipe, 0.0, job.out
    if recipe.regime == "zero-shot":
        model = base_folder(start)
    else:
        if (job.out / REPORT).is_file():  # the run was killed before this fold was scored
            shutil.rmtree(job.out)
            job = replace(job, resume=False)
        inner = hold_out(fold.train, recipe.validation_share, recipe.seed)
        seconds = train_pairs(job, start, PairLesson(OPERATIONS, inner, recipe.data, "Memory operations")).seconds
    labels, speed = classify_pairs(load_classifier(model), fold.held_out)
    size = sum(path.stat().st_size for path in model.glob("*.safetensors"))
    shutil.rmtree(job.out, ignore_errors=True)
    return score_operations(fold.held_out, labels), speed, size, seconds


def comparison_table(rows: Sequence[Row]) -> Table:
    """The rows of `compare_operations` for a person; ± is the standard deviation over the folds."""
    cells = [
        {"base": row["base"], "regime": row["regime"]}
        | {name: "{:.3f} ± {:.3f}".format(*row[score]) for name, score in _SCORES.items()}
        | {
            "pairs/s": f"{row['pairs_per_second']:.0f}",
            "weights, MB": f"{row['megabytes']:.0f}",
            "training of a fold, min": f"{row['minutes']:.1f}",
        }
        for row in rows
    ]
    return Table.of("± is the standard deviation over the folds", cells)


def _write_report(job: TrainingJob[OperationComparisonRecipe], rows: Sequence[Row]) -> None:
    recipe, training = job.recipe, job.recipe.training
    report = {
        "command": job.command,
        **recipe.model_dump(mode="json"),
        "data": dict(hash_files([*operation_files(training), *training.nli, *training.nli_valid])),
        "labels": OPERATIONS,
        "rows": rows,
        "machine": machine(job.out),
        "versions": versions(),
    }
    write_json(job.out / "comparison.json", report)
    runs = f"{recipe.folds} folds by group, seeds: {recipe.seeds}; ± is the standard deviation over the folds."
    parts = [f"`{job.command}`", runs, markdown_table(comparison_table(rows))]
    for row in rows:
        table = confusion_table(f"{row['base']}, {row['regime']}", row["confusion"])
        parts += [f"{table.caption}:", markdown_table(table)]
    write_atomic(job.out / "comparison.md", "\n\n".join(parts) + "\n")


def _summarise(results: Sequence[FoldResult], base: str, regime: str) -> Row:
    runs = [result for result in results if (result.base, result.regime) == (base, regime)]
    values = {score: [getattr(run.scores, score) for run in runs] for score in _SCORES.values()}
    return {
        "base": base,
        "regime": regime,
        "runs": len(runs),
        **{score: (mean(own), stdev(own) if len(own) > 1 else 0.0) for score, own in values.items()},
        "pairs_per_second": mean(run.pairs_per_second for run in runs),
        "megabytes": runs[0].bytes / 1e6,
        "minutes": mean(run.seconds for run in runs) / 60,
        "confusion": np.sum([run.scores.confusion for run in runs], axis=0).tolist(),
    }


def _base_name(base: str) -> str:
    return base if base.startswith(FRESH) else Path(base).name
