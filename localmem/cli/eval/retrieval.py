"""`localmem eval retrieval`: recall of evidence for combinations of units, keys and retrievers."""

from pathlib import Path

import click

from localmem.cli.options import DatasetFile, config_option, json_option, note, print_report, settings_of
from localmem.cli.progress import step_progress
from localmem.cli.recipes import recipe_options
from localmem.experiments.retrieval_grid import RetrievalGrid, measure_grid


@click.command()
@click.option("--dataset", type=DatasetFile(), required=True, help="Data set and its file.", metavar="NAME=FILE")
@recipe_options(RetrievalGrid, flags=[("retrievers", "retriever"), ("units", "memory-unit"), "split"])
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    help="rows.jsonl in the --out of an earlier evaluation to compare with.",
    metavar="FILE",
)
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the report and vectors.", metavar="DIR")
@config_option
@json_option
def retrieval(
    dataset: tuple[str, Path],
    recipe: RetrievalGrid,
    against: Path | None,
    out: Path | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Measure whether search finds the evidence.

    Reports recall by number of units and of tokens. All combinations of the repeatable fields are measured, with the
    differences between every two of them paired by question.
    """
    with step_progress() as progress:
        report = measure_grid(
            settings_of(config), recipe, *dataset, out=out, against=against, notify=note, progress=progress
        )
    print_report(report, as_json=as_json)
