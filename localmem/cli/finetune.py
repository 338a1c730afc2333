"""`localmem finetune`: train the small task models from local weights and local data."""

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from finetune import operation_pairs
from finetune.run_folder import is_first_process
from finetune.trainers import (
    asking,
    compressor,
    operation_classifier,
    ranking,
    reranker,
    retriever,
    second_stage,
    segmenter,
    statements,
)
from finetune.trainers.compressor import Extractor
from finetune.trainers.training import TrainingJob, TrainingResult
from localmem import factory
from localmem.cli.options import (
    Command,
    SettingsFlags,
    dataset_option,
    json_option,
    note,
    print_json,
    print_table,
    settings_options,
    step_progress,
)
from localmem.cli.recipes import recipe_options
from localmem.experiments import operation_comparison
from localmem.experiments.runs import open_backbone
from localmem.reporting.sections import Table, terminal
from localmem.transfer import FileDefaults, read_sessions

_MEASURES = {
    "asked_for": "share of the evidence for questions that is kept",
    "auc": "area under the ROC curve",
    "f1": "F1",
    "macro_f1": "macro F1",
    "mrr": "mean reciprocal rank",
    "random_f1": "F1 of random words",
    "rate": "share of words to keep",
    "share": "share of all sentences that is kept",
    "strength": "strength of the regularisation",
    "p_k": "Pk (error, lower is better)",
    "window_diff": "WindowDiff (error, lower is better)",
}

out_option = click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder for the run.", metavar="DIR"
)
name_option = click.option("--name", help="Register the model under this name.", metavar="NAME")
resume_option = click.option("--resume", is_flag=True, help="Continue the run in --out.")


def run_options(command: Command) -> Command:
    """Add --out, --name, --resume and --json."""
    for option in (json_option, resume_option, name_option, out_option):
        command = option(command)
    return command


def make_job(recipe: BaseModel, out: Path, *, resume: bool = False, name: str | None = None) -> TrainingJob[Any]:
    """The job of the current command line, which reports to the terminal; of several processes, only the first does."""
    notify = note if is_first_process() else lambda _: None
    return TrainingJob(recipe, out, name, command_line(), resume, notify)


def command_line() -> str:
    """The command line that repeats a run, for its card."""
    return shlex.join(["localmem", *sys.argv[1:]])


def print_result(result: TrainingResult, job: TrainingJob[Any], *, as_json: bool, **more: object) -> None:
    """Print the measures of a finished run, in the first process only; `more` are further entries of the JSON."""
    if not is_first_process():
        return
    if as_json:
        print_json({"out": str(job.out), "name": job.name, **asdict(result), **more})
        return
    rows = [(_measure_name(name), f"{value:.4f}") for name, value in result.measures.items()]
    print_table(rows, ["measure on the validation data", "value"], disable_numparse=True, colalign=("left", "right"))
    note(f"{result.steps} training steps in {result.seconds:.0f} s; the model, its card and curves are in {job.out}")


def _measure_name(name: str) -> str:
    label = name.removeprefix("f1_")
    return f"F1 of {label}" if label != name else _MEASURES.get(name, name.replace("_", " "))


@click.group()
def finetune() -> None:
    """Train the small task models."""


@finetune.command("segmenter")
@recipe_options(segmenter.SegmenterRecipe, flags=["base", "train", "valid", "epochs"])
@run_options
def train_segmenter(
    recipe: segmenter.SegmenterRecipe, out: Path, name: str | None, resume: bool, as_json: bool
) -> None:
    """Train a segmenter of dialogues.

    It predicts for each gap between exchanges whether a new topic begins. With SeCom's option `segmenter`, sessions are
    then divided without the LLM.
    """
    job = make_job(recipe, out, resume=resume, name=name)
    print_result(segmenter.train(job), job, as_json=as_json)


@finetune.command("texttiling")
@recipe_options(segmenter.TextTilingRecipe, flags=["base", "train", "valid", "limit"])
@out_option
@name_option
@json_option
def train_texttiling(recipe: segmenter.TextTilingRecipe, out: Path, name: str | None, as_json: bool) -> None:
    """Train a segmenter on an unchanged encoder.

    A logistic regression over the encoder's vectors and a few cues of each gap: minutes on a CPU, and nearly as good as
    a trained encoder. Used as SeCom's option `segmenter`.
    """
    job = make_job(recipe, out, name=name)
    print_result(segmenter.train_tiling(job), job, as_json=as_json)


@finetune.command("statements")
@recipe_options(statements.StatementRecipe, flags=["base", ("data", "people"), "labels"])
@out_option
@name_option
@json_option
def train_statements(recipe: statements.StatementRecipe, out: Path, name: str | None, as_json: bool) -> None:
    """Train a selector of what is worth remembering.

    A logistic regression over the vectors and a few cues of people's sentences: a minute on a CPU. The setting
    chat.stages quotes what it selects in place of summaries by a backbone that is too small to write them.
    """
    job = make_job(recipe, out, name=name)
    print_result(statements.train(job), job, as_json=as_json)


@finetune.command("compressor")
@recipe_options(compressor.CompressorRecipe, flags=["base", "train", "valid"])
@settings_options("config")
@run_options
def train_compressor(
    recipe: compressor.CompressorRecipe, flags: SettingsFlags, out: Path, name: str | None, resume: bool, as_json: bool
) -> None:
    """Train a compressor of memories.

    A token classifier into drop and keep: memories lose the words that carry least before they are indexed. The labels
    come from summaries or extracts in the files, or from a local model (label_with) that crosses words out.
    """
    job = make_job(recipe, out, resume=resume, name=name)
    with ExitStack() as stack:
        extract = None
        if recipe.label_with:
            llm = open_backbone(flags.load(model=recipe.label_with), stack, note)
            extract = Extractor(llm, out / "labels.jsonl", note)
        print_result(compressor.train(job, extract), job, as_json=as_json)


@finetune.command("retriever")
@dataset_option
@recipe_options(retriever.RetrieverRecipe, flags=["base", "epochs"])
@run_options
def train_retriever(
    datasets: Sequence[tuple[str, Path]],
    recipe: retriever.RetrieverRecipe,
    out: Path,
    name: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Train an encoder for retrieval.

    Triplet loss moves a question closer to its answer than to texts that BM25 would find. Data sets: locomo,
    longmemeval, mtbenchplus, or pairs (JSONL of query, positive, group and optionally negatives). One half of the
    conversations is learned from, the other is measured before and after; a hash of ids divides them.
    """
    job = make_job(recipe, out, resume=resume, name=name)
    result, comparisons = retriever.train(job, datasets)
    print_result(result, job, as_json=as_json, report=[asdict(row) for row in comparisons])
    if not as_json:
        click.echo(retriever.comparison_table(comparisons))


@finetune.command("reranker")
@recipe_options(reranker.RerankerRecipe, flags=["base", ("data", "lessons"), "hold_out", "epochs"])
@run_options
def train_reranker(recipe: reranker.RerankerRecipe, out: Path, name: str | None, resume: bool, as_json: bool) -> None:
    """Train a reranker of exchanges.

    The upper layers of an encoder learn to read a question and an exchange together. The data are folders of scenarios
    or of contrasts, and LongMemEval's evidence (.jsonl); some people are held out. Used as the option `reranker` of the
    system `evidence`.
    """
    job = make_job(recipe, out, resume=resume, name=name)
    print_result(reranker.train(job), job, as_json=as_json)


@finetune.command("second-stage")
@recipe_options(second_stage.SecondStageRecipe, flags=["base", ("data", "lessons"), "hold_out", "epochs"])
@run_options
def train_second_stage(
    recipe: second_stage.SecondStageRecipe, out: Path, name: str | None, resume: bool, as_json: bool
) -> None:
    """Train a larger network behind a reranker.

    It scores the likeliest texts of a trained reranker (--set first=NAME) again: an adapter over an encoder that reads
    a question and a text together. The data are as for a reranker. For the setting chat.reader, with --set
    sentences=true.
    """
    job = make_job(recipe, out, resume=resume, name=name)
    print_result(second_stage.train(job), job, as_json=as_json)


_people_option = click.option(
    "--lessons",
    "folders",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="Folder of scenarios. Repeatable.",
    metavar="FOLDER",
)
_hold_out_option = click.option(
    "--hold-out", multiple=True, metavar="AUTHOR", help="Author whose people are not used. Repeatable."
)


@finetune.command("ranking")
@_people_option
@click.option(
    "--reranker",
    "rerankers",
    multiple=True,
    metavar="AUTHOR=FOLDER",
    help="Reranker that was trained without this author; default: that of the settings. Repeatable.",
)
@_hold_out_option
@settings_options("config")
@out_option
@json_option
def fit_ranking(
    folders: Sequence[Path],
    rerankers: Sequence[str],
    hold_out: Sequence[str],
    flags: SettingsFlags,
    out: Path,
    as_json: bool,
) -> None:
    """Fit the ranking weights of the system evidence.

    Writes ranking.yaml (the weights that order exchanges) and relevance.yaml (those that decide whether a request needs
    memory). Both are measured on each author with weights fitted on the others.
    """
    if wrong := [pair for pair in rerankers if "=" not in pair]:
        raise click.UsageError(f"--reranker {wrong[0]!r} is not AUTHOR=FOLDER; write for example --reranker a=runs/a")
    by_author = dict(pair.split("=", 1) for pair in rerankers)
    rows = ranking.fit_ranking(flags.load(), folders, by_author, out, hold_out)
    if as_json:
        print_json(rows)
    else:
        click.echo(terminal([Table.of("On each author, fitted on the others", rows)]))


@finetune.command("asking")
@_people_option
@_hold_out_option
@click.option("--reranker", default="minilm-l6-v2-reader", show_default=True, help="Reranker that describes turns.")
@out_option
@json_option
def fit_asking(folders: Sequence[Path], hold_out: Sequence[str], reranker: str, out: Path, as_json: bool) -> None:
    """Fit what recognises questions about the user.

    Writes asking.yaml with the weights by which a turn that asks for what the user said is told from a request, a
    statement or a general question. Measured on the authors who are held out.
    """
    rows = asking.fit_asking(factory.reranker(reranker, "auto"), folders, hold_out, out)
    if as_json:
        print_json(rows)
    else:
        click.echo(terminal([Table.of("On the authors who are held out", rows)]))


@finetune.command("operations")
@recipe_options(operation_classifier.OperationRecipe, flags=["base", ("data", "pairs"), ("nli", "nli-pairs"), "epochs"])
@run_options
def train_operations(
    recipe: operation_classifier.OperationRecipe, out: Path, name: str | None, resume: bool, as_json: bool
) -> None:
    """Train a classifier of memory operations.

    It predicts what a new sentence does to a remembered one: PASS, APPEND, REPLACE or DELETE. With CareCall's option
    `classifier`, the LLM is then asked for summaries only.
    """
    job = make_job(recipe, out, resume=resume, name=name)
    print_result(operation_classifier.train(job), job, as_json=as_json)


@finetune.command()
@recipe_options(
    operation_comparison.OperationComparisonRecipe, flags=[("bases", "base"), ("regimes", "regime"), "folds"]
)
@out_option
@resume_option
@json_option
def compare_operations(
    recipe: operation_comparison.OperationComparisonRecipe, out: Path, resume: bool, as_json: bool
) -> None:
    """Compare base models and training regimes.

    Cross-validates classifiers of memory operations and keeps no model. Options of the trainings are fields of
    `training`, for example --set training.epochs=4.
    """
    rows = operation_comparison.compare_operations(make_job(recipe, out, resume=resume))
    if as_json:
        print_json(rows)
    else:
        click.echo(terminal([operation_comparison.comparison_table(rows)]))


@finetune.command()
@click.argument("conversations", type=click.Path(path_type=Path), metavar="FILE")
@settings_options("config", "model")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Labelled pairs, JSONL.", metavar="FILE")
@resume_option
@json_option
def label_operations(conversations: Path, flags: SettingsFlags, out: Path, resume: bool, as_json: bool) -> None:
    """Label operation pairs with a backbone.

    FILE is JSONL of sessions. The result is training data for `localmem finetune operations --pairs`.
    """
    settings = flags.load()
    sessions = read_sessions(conversations, FileDefaults(settings.chat.user_name, settings.chat.assistant_name))
    with ExitStack() as stack, step_progress() as progress:
        llm = open_backbone(settings, stack, note)
        counts = operation_pairs.label_operations(llm, sessions, out, resume=resume, progress=progress)
    if as_json:
        print_json({"out": str(out), **counts})
    else:
        print_table(list(counts.items()), ["label", "pairs"])
