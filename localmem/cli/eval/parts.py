"""`localmem eval retrieval`, `compression`, `segmentation` and `operations`: the parts of a memory, each on its own."""

from pathlib import Path

import click

from localmem.cli.options import (
    DatasetFile,
    SettingsFlags,
    json_option,
    note,
    print_report,
    settings_options,
    step_progress,
)
from localmem.cli.recipes import recipe_options
from localmem.experiments.key_compression import KeyCompressionRecipe, measure_key_compression
from localmem.experiments.operation_evaluation import OperationsRecipe, compare_classifiers
from localmem.experiments.retrieval_grid import RetrievalGrid, measure_grid
from localmem.experiments.segmenter_comparison import SegmentationRecipe, compare_segmenters

_FILE = click.Path(path_type=Path)
_dataset_option = click.option(
    "--dataset", type=DatasetFile(), required=True, help="Data set and its file.", metavar="NAME=FILE"
)
_out_option = click.option("--out", type=_FILE, help="Folder for the report.", metavar="DIR")


@click.command()
@_dataset_option
@recipe_options(RetrievalGrid, flags=[("systems", "system"), ("retrievers", "retriever"), ("units", "memory-unit")])
@click.option(
    "--against", type=_FILE, help="rows.jsonl in the --out of an earlier evaluation to compare with.", metavar="FILE"
)
@_out_option
@settings_options("config")
@json_option
def retrieval(
    dataset: tuple[str, Path],
    recipe: RetrievalGrid,
    against: Path | None,
    out: Path | None,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Measure whether search finds the evidence.

    Reports recall by number of units and of tokens. All combinations of the repeatable fields are measured, with the
    differences between every two of them paired by question. With --out, vectors are stored and reused.
    """
    with step_progress() as progress:
        report = measure_grid(flags.load(), recipe, *dataset, out=out, against=against, notify=note, progress=progress)
    print_report(report, as_json=as_json)


@click.command()
@_dataset_option
@recipe_options(KeyCompressionRecipe, flags=[("compressors", "compressor"), ("retrievers", "retriever"), "limit"])
@_out_option
@settings_options("config")
@json_option
def compression(
    dataset: tuple[str, Path], recipe: KeyCompressionRecipe, out: Path | None, flags: SettingsFlags, as_json: bool
) -> None:
    """Measure search over compressed keys.

    Reports recall at each rate with every compressor and retriever, the paired differences from uncompressed keys and
    from random compression, and the cosines of questions to keys of related and unrelated units.
    """
    report = measure_key_compression(flags.load(), recipe, *dataset, out=out, notify=note)
    print_report(report, as_json=as_json)


@click.command()
@click.option(
    "--dialogues",
    type=_FILE,
    required=True,
    help="Labelled dialogues: TIAGE or SuperDialseg JSONL, DialSeg711 JSON.",
    metavar="FILE",
)
@recipe_options(SegmentationRecipe, flags=[("segmenters", "segmenter"), "limit"])
@click.option(
    "--learn-rubric",
    type=_FILE,
    help="Learn a rubric from the LLM's worst dialogues into this YAML file.",
    metavar="FILE",
)
@_out_option
@settings_options("config", "model")
@json_option
def segmentation(
    dialogues: Path,
    recipe: SegmentationRecipe,
    learn_rubric: Path | None,
    out: Path | None,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Compare topic segments with labelled ones.

    Reports F1, P_k, WindowDiff and their Score (1 is best). With --learn-rubric the backbone then studies the dialogues
    with the largest errors and writes a rubric, which SeCom accepts as its option `rubric`.
    """
    settings = flags.load()
    with step_progress() as progress:
        report = compare_segmenters(
            settings, recipe, dialogues, learned_rubric=learn_rubric, out=out, notify=note, progress=progress
        )
    print_report(report, as_json=as_json)


@click.command()
@recipe_options(OperationsRecipe, flags=[("classifiers", "classifier"), "limit"])
@click.option("--pairs", type=_FILE, help="Labelled pairs, JSONL; default: the shipped ones.", metavar="FILE")
@_out_option
@settings_options("config", "model")
@json_option
def operations(
    recipe: OperationsRecipe, pairs: Path | None, out: Path | None, flags: SettingsFlags, as_json: bool
) -> None:
    """Compare classifiers of memory operations.

    Reports accuracy, F1, confusion, set F1, speed, and what a shortlist costs and saves at the end of a session. Scores
    of a model on its own training pairs are too high; `localmem finetune compare-operations` holds pairs out.
    """
    report = compare_classifiers(flags.load(), recipe, pairs, out=out, notify=note)
    print_report(report, as_json=as_json)
