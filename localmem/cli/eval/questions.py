"""`localmem eval questions`: questions about sessions that have none."""

from pathlib import Path

import click

from localmem.cli.options import (
    DatasetFile,
    SettingsFlags,
    json_option,
    note,
    print_json,
    settings_options,
    step_progress,
)
from localmem.experiments.made_questions import make_questions


@click.command()
@click.option("--dataset", type=DatasetFile(), required=True, help="Source data set and its file.", metavar="NAME=FILE")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="JSONL file to write.", metavar="FILE")
@click.option("--limit", type=click.IntRange(1), help="Use only the first N episodes.", metavar="N")
@click.option("--number", type=click.IntRange(1), default=5, show_default=True, help="Most questions per session.")
@settings_options("config", "model")
@json_option
def questions(
    dataset: tuple[str, Path], out: Path, limit: int | None, number: int, flags: SettingsFlags, as_json: bool
) -> None:
    """Write questions about the sessions of a data set.

    The backbone writes questions with their answers and the messages that hold them, as SeCom's authors had it done for
    LoCoMo; use a large --model, and read some before you rely on them. FILE is a data set for `localmem eval run
    --dataset jsonl=FILE`.
    """
    with step_progress() as progress:
        counts = make_questions(flags.load(), dataset, out, limit=limit, number=number, notify=note, progress=progress)
    if as_json:
        print_json(counts)
        return
    for reason, count in sorted(counts.items()):
        click.echo(f"{reason}: {count}")
