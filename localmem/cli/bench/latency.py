"""`localmem bench latency`, `report` and `compare`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.benchmark.latency.recipe import LatencyRecipe
from localmem.cli.options import config_option, json_option, note, print_json
from localmem.cli.recipes import recipe_options
from localmem.errors import BadInput

if TYPE_CHECKING:
    from localmem.types import Session

_folder = click.Path(path_type=Path)


@click.command()
@recipe_options(
    LatencyRecipe, flags=(("systems", "system"), ("models", "model"), ("history", "past-sessions"), "concurrency")
)
@click.option("--out", type=_folder, required=True, metavar="DIR", help="Folder of the run.")
@click.option("--resume", is_flag=True, help="Continue the run in --out.")
@config_option
@json_option
def latency(recipe: LatencyRecipe, out: Path, *, resume: bool, config: Path | None, as_json: bool) -> None:
    """Measure latency stage by stage.

    Runs real agents over a real backbone: time to the first token with and without memory, and the time of each stage.
    Every request is written to DIR/samples.jsonl at once, every finished measurement to DIR/result.json. A run with
    several models has a folder for each.
    """
    from localmem.benchmark.latency.report import headline
    from localmem.experiments.latency_setup import measure_latency

    results = measure_latency(
        recipe, out, config=config, resume=resume, notify=note, track=_track_sessions, progress=_start_bar
    )
    if as_json:
        documents = [asdict(result) for result in results]
        print_json(documents[0] if len(documents) == 1 else documents)
    else:
        lines = [headline(point) for result in results for point in result.points]
        click.echo("\n".join([*lines, f"All figures: localmem bench report {out}"]))


@click.command()
@click.argument("folders", type=_folder, nargs=-1, required=True, metavar="DIR…")
@click.option("--out", type=_folder, metavar="DIR", help="Folder of the report (default: the first DIR).")
@click.option("--quality", type=_folder, metavar="DIR", help="Folder of an `eval run` of the same systems.")
@json_option
def report(folders: Sequence[Path], out: Path | None, quality: Path | None, as_json: bool) -> None:
    """Report latency runs as HTML and Markdown.

    Each DIR is the --out of `localmem bench latency`, or a folder of several. The page is self-contained.
    """
    from localmem.benchmark.latency.report import read_chapters, read_scores
    from localmem.experiments.runs import ANSWERS
    from localmem.reporting.pages import write_pages

    target = out or (folders[0] if folders[0].is_dir() else folders[0].parent)
    chapters = read_chapters(folders, target, read_scores(quality / ANSWERS) if quality else {})
    pages = write_pages(target, "localmem latency", chapters)
    if as_json:
        sections = {chapter.title: [asdict(section) for section in chapter.sections] for chapter in chapters}
        print_json([{"run": title, "sections": each} for title, each in sections.items()])
    else:
        for chapter in chapters:
            click.echo("\n  ".join([chapter.title, *chapter.sections[0].notes]))
    note(" and ".join(map(str, pages)))


@click.command()
@click.argument("first", type=_folder, metavar="A")
@click.argument("second", type=_folder, metavar="B")
@json_option
def compare(first: Path, second: Path, as_json: bool) -> None:
    """Compare two latency runs.

    Prints the ratios of B to A with 95 % intervals. A and B are folders of `localmem bench latency` or their
    result.json; the intervals need the raw samples beside it.
    """
    from localmem.benchmark.latency.compare import compare
    from localmem.reporting.pages import terminal

    comparison = compare(first, second)
    if as_json:
        rows = [{**asdict(row), "verdict": row.verdict} for row in comparison.rows]
        print_json({**asdict(comparison), "rows": rows})
    else:
        click.echo(terminal(comparison.tables()))
        click.echo("\n".join([f"A is {first}, B is {second}", *comparison.notes]))
    if not comparison.rows:
        raise BadInput(
            f"{first} and {second} have no measurement in common; give runs of the same systems, loads and histories"
        )


def _track_sessions(title: str, sessions: "Sequence[Session]") -> "Iterable[Session]":
    from tqdm import tqdm

    return tqdm(sessions, desc=title, unit="session", disable=None, leave=False)


def _start_bar(title: str, requests: int) -> "Callable[[], object]":
    """A bar on a terminal; one line for each measurement in a pipe."""
    from tqdm import tqdm

    bar = tqdm(total=requests, desc=title, unit="request", disable=None)
    if bar.disable:
        note(title)
    return bar.update
