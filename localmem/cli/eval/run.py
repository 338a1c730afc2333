"""`localmem eval run`: memory systems read data sets and answer their questions."""

from collections.abc import Sequence
from pathlib import Path

import click

from localmem.cli.options import config_option, dataset_option, model_option, note, settings_of
from localmem.cli.progress import step_progress
from localmem.cli.recipes import recipe_options
from localmem.experiments.runs import ANSWERS, EvaluationRecipe, evaluate


@click.command(name="run")
@dataset_option
@recipe_options(EvaluationRecipe, flags=[("systems", "system"), "limit", "retry_failed"])
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the run.", metavar="DIR")
@click.option("--resume", is_flag=True, help="Continue the run in --out; further systems may join.")
@config_option
@model_option
def run_(
    datasets: Sequence[tuple[str, Path]],
    recipe: EvaluationRecipe,
    out: Path,
    resume: bool,
    config: Path | None,
    model: str | None,
) -> None:
    """Let memory systems answer questions about data sets.

    All systems use the same backbone. The baselines full_history (all text in the prompt) and utterance_retrieval/bm25
    (plain search) are always included. Answers are written at once, so an interrupted run continues with --resume.
    """
    settings = settings_of(config, model=model)
    with step_progress() as progress:
        evaluate(settings, recipe, datasets=dict(datasets), out=out, resume=resume, notify=note, progress=progress)
    note(f"answers are in {out / ANSWERS}; run `localmem eval report {out}`")
