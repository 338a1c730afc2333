"""`localmem finetune`: train the small task models from local weights and local data."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click

from finetune.trainers.compressor import CompressorRecipe
from finetune.trainers.operation_classifier import OperationRecipe
from finetune.trainers.retriever import RetrieverRecipe
from finetune.trainers.segmenter import SegmenterRecipe
from finetune.trainers.texttiling import TextTilingRecipe
from localmem.cli.finetune.training_options import (
    make_job,
    out_option,
    print_result,
    resume_option,
    run_options,
)
from localmem.cli.options import (
    SettingsFlags,
    dataset_option,
    json_option,
    note,
    print_json,
    print_table,
    settings_options,
)
from localmem.cli.progress import step_progress
from localmem.cli.recipes import recipe_options
from localmem.experiments.operation_comparison import OperationComparisonRecipe


@click.group()
def finetune() -> None:
    """Train the small task models."""


@finetune.command()
@recipe_options(SegmenterRecipe, flags=["base", "train", "valid", "epochs"])
@run_options
def segmenter(recipe: SegmenterRecipe, out: Path, name: str | None, resume: bool, as_json: bool) -> None:
    """Train a segmenter of dialogues.

    It predicts for each gap between exchanges whether a new topic begins. With SeCom's option `segmenter`, sessions are
    then divided without the LLM.
    """
    from finetune.trainers.segmenter import train

    job = make_job(recipe, out, resume=resume, name=name)
    print_result(train(job), job, as_json=as_json)


@finetune.command()
@recipe_options(TextTilingRecipe, flags=["base", "train", "valid", "limit"])
@out_option
@click.option("--name", help="Register the model under this name.", metavar="NAME")
@json_option
def texttiling(recipe: TextTilingRecipe, out: Path, name: str | None, as_json: bool) -> None:
    """Train a segmenter on an unchanged encoder.

    A logistic regression over the encoder's vectors and a few cues of each gap: minutes on a CPU, and nearly as good as
    a trained encoder. Used as SeCom's option `segmenter`.
    """
    from finetune.trainers.texttiling import train

    job = make_job(recipe, out, name=name)
    print_result(train(job), job, as_json=as_json)


@finetune.command()
@recipe_options(CompressorRecipe, flags=["base", "train", "valid"])
@settings_options("config")
@run_options
def compressor(
    recipe: CompressorRecipe, flags: SettingsFlags, out: Path, name: str | None, resume: bool, as_json: bool
) -> None:
    """Train a compressor of memories.

    A token classifier into drop and keep: memories lose the words that carry least before they are indexed. The labels
    come from summaries or extracts in the files, or from a local model (label_with) that crosses words out.
    """
    from finetune.compression_labels import Extractor
    from finetune.trainers.compressor import train
    from localmem.experiments.runs import open_backbone

    job = make_job(recipe, out, resume=resume, name=name)
    with ExitStack() as stack:
        extract = None
        if recipe.label_with:
            extract = Extractor(
                open_backbone(flags.load(model=recipe.label_with), stack, note), out / "labels.jsonl", note
            )
        print_result(train(job, extract), job, as_json=as_json)


@finetune.command()
@dataset_option
@recipe_options(RetrieverRecipe, flags=["base", "epochs"])
@run_options
def retriever(
    datasets: Sequence[tuple[str, Path]],
    recipe: RetrieverRecipe,
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
    from finetune.trainers.retriever import comparison_table, train

    job = make_job(recipe, out, resume=resume, name=name)
    result, comparisons = train(job, datasets)
    print_result(result, job, as_json=as_json, report=[asdict(row) for row in comparisons])
    if not as_json:
        click.echo(comparison_table(comparisons))


@finetune.command()
@recipe_options(OperationRecipe, flags=["base", ("data", "pairs"), ("nli", "nli-pairs"), "epochs"])
@run_options
def operations(recipe: OperationRecipe, out: Path, name: str | None, resume: bool, as_json: bool) -> None:
    """Train a classifier of memory operations.

    It predicts what a new sentence does to a remembered one: PASS, APPEND, REPLACE or DELETE. With CareCall's option
    `classifier`, the LLM is then asked for summaries only.
    """
    from finetune.trainers.operation_classifier import train

    job = make_job(recipe, out, resume=resume, name=name)
    print_result(train(job), job, as_json=as_json)


@finetune.command()
@recipe_options(OperationComparisonRecipe, flags=[("bases", "base"), ("regimes", "regime"), "folds"])
@out_option
@resume_option
@json_option
def compare_operations(recipe: OperationComparisonRecipe, out: Path, resume: bool, as_json: bool) -> None:
    """Compare base models and training regimes.

    Cross-validates classifiers of memory operations and keeps no model. Options of the trainings are fields of
    `training`, for example --set training.epochs=4.
    """
    from localmem.experiments.operation_comparison import compare_operations

    rows = compare_operations(make_job(recipe, out, resume=resume))
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        cells = [row.cells() for row in rows]
        print_table([list(row.values()) for row in cells], list(cells[0]), disable_numparse=True)


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
    from finetune.operation_labels import label_operations
    from localmem.experiments.runs import open_backbone
    from localmem.store.conversation_files import SpeakerNames, read_sessions

    settings = flags.load()
    sessions = read_sessions(conversations, SpeakerNames(settings.chat.user_name, settings.chat.assistant_name))
    with ExitStack() as stack, step_progress() as progress:
        llm = open_backbone(settings, stack, note)
        counts = label_operations(llm, sessions, out, resume=resume, progress=progress)
    if as_json:
        print_json({"out": str(out), **counts})
    else:
        click.echo(", ".join(f"{label}: {count}" for label, count in counts.items()))
