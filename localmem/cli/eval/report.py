"""`localmem eval report`: evaluations as one HTML page and one Markdown text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of

if TYPE_CHECKING:
    from localmem.evaluation.file_scoring import MetricName


@click.command()
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="DIR…")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder for report.html and report.md; default: the first DIR.",
    metavar="DIR",
)
@click.option(
    "--metric",
    "metrics",
    type=click.Choice(["bertscore", "mauve"]),
    multiple=True,
    help="Further metric of a run's answers. Repeatable.",
)
@click.option("--encoder", help="Encoder for BERTScore, by name or folder; default: that of the settings.", metavar="E")
@config_option
@model_option
@json_option
def report(
    folders: Sequence[Path],
    out: Path | None,
    metrics: "Sequence[MetricName]",
    encoder: str | None,
    config: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Report evaluations as HTML and Markdown.

    Each DIR is the --out of `localmem eval run` or of another evaluation. The page shows quality, costs and every
    answer, and is self-contained.
    """
    from dataclasses import asdict

    from localmem.evaluation.file_scoring import LocalModels, ScoringModels, TextRecipe
    from localmem.experiments.reports import read_chapters
    from localmem.reporting.pages import markdown, write_pages

    models = LocalModels(settings_of(config, model=model), TextRecipe(encoder=encoder))
    chapters = read_chapters(folders, metrics, ScoringModels(models.encoder, models.backbone))
    html, text = write_pages(out or folders[0], "localmem evaluation", chapters)
    if as_json:
        sections = [section for chapter in chapters for section in chapter.sections]
        print_json([{**asdict(section), "answers": len(section.answers)} for section in sections])
    else:
        click.echo(markdown("localmem evaluation", chapters, out or folders[0]))
    note(f"wrote {html} and {text}")
