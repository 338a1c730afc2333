"""`localmem eval segmentation`: segmenters against labelled dialogues, and a rubric learned from errors."""

from pathlib import Path

import click

from localmem.cli.options import config_option, json_option, model_option, note, print_report, settings_of
from localmem.cli.progress import step_progress
from localmem.cli.recipes import recipe_options
from localmem.experiments.segmenter_comparison import SegmentationRecipe, compare_segmenters


@click.command()
@click.option(
    "--dialogues",
    type=click.Path(path_type=Path),
    required=True,
    help="Labelled dialogues: TIAGE or SuperDialseg JSONL, DialSeg711 JSON.",
    metavar="FILE",
)
@recipe_options(SegmentationRecipe, flags=[("segmenters", "segmenter"), "limit"])
@click.option(
    "--learn-rubric",
    type=click.Path(path_type=Path),
    help="Learn a rubric from the LLM's worst dialogues into this YAML file.",
    metavar="FILE",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the report.", metavar="DIR")
@config_option
@model_option
@json_option
def segmentation(
    dialogues: Path,
    recipe: SegmentationRecipe,
    learn_rubric: Path | None,
    out: Path | None,
    config: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Compare topic segments with labelled ones.

    Reports F1, P_k, WindowDiff and their Score (1 is best). With --learn-rubric the backbone then studies the dialogues
    with the largest errors and writes a rubric, which SeCom accepts as its option `rubric`.
    """
    settings = settings_of(config, model=model)
    with step_progress() as progress:
        report = compare_segmenters(
            settings, recipe, dialogues, learned_rubric=learn_rubric, out=out, notify=note, progress=progress
        )
    print_report(report, as_json=as_json)
