"""`localmem eval run` and `report`: memory systems answer the questions of data sets, and pages show the results."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from localmem.cli.options import SettingsFlags, dataset_option, json_option, note, print_json, settings_options
from localmem.cli.progress import step_progress
from localmem.cli.recipes import recipe_options
from localmem.evaluation.file_scoring import MetricName, ScoringModels, TextRecipe
from localmem.experiments.runs import ANSWERS, EvaluationRecipe, evaluate, read_chapters


@click.command(name="run")
@dataset_option
@recipe_options(EvaluationRecipe, flags=[("systems", "system"), "limit", "retry_failed"])
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for the run.", metavar="DIR")
@click.option("--resume", is_flag=True, help="Continue the run in --out; further systems may join.")
@settings_options("config", "model")
def run_(
    datasets: Sequence[tuple[str, Path]], recipe: EvaluationRecipe, out: Path, resume: bool, flags: SettingsFlags
) -> None:
    """Let memory systems answer questions about data sets.

    All systems use the same backbone. The baselines full_history (all text in the prompt) and utterance_retrieval/bm25
    (plain search) are always included. Answers are written at once, so an interrupted run continues with --resume.
    """
    settings = flags.load()
    with step_progress() as progress:
        evaluate(settings, recipe, datasets=dict(datasets), out=out, resume=resume, notify=note, progress=progress)
    note(f"answers are in {out / ANSWERS}; run `localmem eval report {out}`")


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
@settings_options("config", "model")
@json_option
def report(
    folders: Sequence[Path],
    out: Path | None,
    metrics: Sequence[MetricName],
    encoder: str | None,
    flags: SettingsFlags,
    as_json: bool,
) -> None:
    """Report evaluations as HTML and Markdown.

    Each DIR is the --out of `localmem eval run` or of another evaluation. The page shows quality, costs and every
    answer, and is self-contained.
    """
    from localmem.reporting.pages import markdown, write_pages

    models = ScoringModels(flags.load(), TextRecipe(encoder=encoder))
    chapters = read_chapters(folders, metrics, models)
    html, text = write_pages(out or folders[0], "localmem evaluation", chapters)
    if as_json:
        sections = [section for chapter in chapters for section in chapter.sections]
        print_json([{**asdict(section), "answers": len(section.answers)} for section in sections])
    else:
        click.echo(markdown("localmem evaluation", chapters, out or folders[0]))
    note(f"wrote {html} and {text}")
