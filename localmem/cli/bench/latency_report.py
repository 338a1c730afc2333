"""`localmem bench report` and `compare`: what latency runs found, told and set beside one another. Measures nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import json_option, note, print_json
from localmem.errors import BadInput
from localmem.files import writing

if TYPE_CHECKING:
    from localmem.benchmark.latency.runs import Quality, Run
    from localmem.reporting.sections import Section

Told = Sequence[tuple["Run", Sequence["Section"]]]


@click.command()
@click.argument("folders", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="DIR…")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Where report.html, report.md and the pictures go; default: the first DIR.",
    metavar="DIR",
)
@click.option(
    "--quality",
    "evaluation",
    type=click.Path(path_type=Path),
    help="A folder of `localmem eval run`: how good the same systems' answers were.",
    metavar="DIR",
)
@json_option
def report(folders: Sequence[Path], out: Path | None, evaluation: Path | None, as_json: bool) -> None:
    """Tell what latency runs found, as one HTML page and one Markdown text, with pictures.

    Each DIR is the --out of `localmem bench latency`, or a folder of several. The page needs nothing but itself.
    """
    from localmem.benchmark.latency.report import chapters, sections
    from localmem.benchmark.latency.runs import read_runs
    from localmem.reporting.pages import write_pages

    runs, qualities = read_runs(folders), _quality(evaluation)
    where = out or (folders[0] if folders[0].is_dir() else folders[0].parent)
    with writing(where, "choose another --out"):
        where.mkdir(parents=True, exist_ok=True)
    told = [(run, sections(run, where, qualities)) for run in runs]
    html, words = write_pages(where, "localmem latency", chapters(told, where))
    _show(told, as_json=as_json)
    note(f"{html} and {words}")


@click.command()
@click.argument("first", type=click.Path(path_type=Path), metavar="A")
@click.argument("second", type=click.Path(path_type=Path), metavar="B")
@json_option
def compare(first: Path, second: Path, as_json: bool) -> None:
    """Set two latency runs beside each other, point by point: ratios of B to A, with 95 % intervals.

    A and B are folders of `localmem bench latency`, or their result.json; the raw samples beside it give the intervals.
    """
    show_comparison(first, second, as_json=as_json)


def show_comparison(first: Path, second: Path, *, as_json: bool) -> None:
    """What `compare` prints. Raises BadInput."""
    from dataclasses import asdict

    from localmem.benchmark.latency.compare import compare, tables
    from localmem.reporting.pages import terminal

    found = compare(first, second)
    if as_json:
        rows = [{**asdict(row), "verdict": row.verdict} for row in found.rows]
        print_json({**asdict(found), "rows": rows})
    else:
        click.echo(terminal(tables(found, ("A", "B"))))
        lines = [f"{one} has no partner in the other run" for side in found.alone for one in side]
        for line in (f"A is {first}, B is {second}", *lines, *found.notes):
            click.echo(line)
    if not found.rows:
        raise BadInput(f"{first} and {second} share no point; give runs of the same systems, loads and histories")


def _quality(evaluation: Path | None) -> "list[Quality]":
    from localmem.benchmark.latency.runs import quality
    from localmem.experiments.runs import ANSWERS

    return quality(evaluation / ANSWERS) if evaluation else []


def _show(told: "Told", *, as_json: bool) -> None:
    """All of it as JSON; for a person the plain lines, for the rest is on the page."""
    from dataclasses import asdict

    if as_json:
        print_json([{"run": run.name, "sections": [asdict(part) for part in parts]} for run, parts in told])
        return
    for run, parts in told:
        click.echo(run.name)
        for line in parts[0].notes:
            click.echo(f"  {line}")
