"""`localmem eval operations`: classifiers of memory operations against labelled pairs."""

from pathlib import Path

import click

from localmem.cli.options import config_option, json_option, model_option, note, print_report, settings_of
from localmem.cli.recipes import recipe_options
from localmem.experiments.operation_evaluation import OperationsRecipe, compare_classifiers


@click.command()
@recipe_options(OperationsRecipe, flags=[("classifiers", "classifier"), "limit"])
@click.option(
    "--pairs", type=click.Path(path_type=Path), help="Labelled pairs, JSONL; default: the shipped ones.", metavar="FILE"
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the report.", metavar="DIR")
@config_option
@model_option
@json_option
def operations(
    recipe: OperationsRecipe,
    pairs: Path | None,
    out: Path | None,
    config: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Compare classifiers of memory operations.

    Reports accuracy, F1, confusion, set F1, speed, and what a shortlist costs and saves at the end of a session. Scores
    of a model on its own training pairs are too high; `localmem finetune compare-operations` holds pairs out.
    """
    report = compare_classifiers(settings_of(config, model=model), recipe, pairs, out=out, notify=note)
    print_report(report, as_json=as_json)
