"""`localmem finetune retriever`: an encoder that finds what answers a question. Knows how it looks on a terminal."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from localmem.cli.finetune.training_options import (
    base_folder,
    base_option,
    command_line,
    plan_options,
    run_options,
    tell,
)
from localmem.cli.options import note, print_json

if TYPE_CHECKING:
    from finetune.trainers.training import Plan


@click.command()
@base_option
@click.option(
    "--data",
    type=(click.Choice(["locomo", "longmemeval", "mtbenchplus", "pairs"]), click.Path(path_type=Path)),
    multiple=True,
    required=True,
    help="A data set and its file; pairs: JSONL of query, positive, group and maybe negatives. May be given again.",
    metavar="NAME FILE",
)
@click.option(
    "--unit",
    type=click.Choice(["exchange", "turn"]),
    default="exchange",
    show_default=True,
    help="What is to be found, in a data set.",
)
@click.option("--hard", type=click.IntRange(0), default=2, show_default=True, help="Wrong texts from BM25, a question.")
@click.option(
    "--far", type=click.IntRange(0), default=1, show_default=True, help="Wrong texts from other sessions, a question."
)
@click.option(
    "--positives", type=click.IntRange(1), default=4, show_default=True, help="Right texts a question, at most."
)
@click.option("--margin", type=click.FloatRange(0, min_open=True), default=0.2, show_default=True)
@click.option("--window", type=click.IntRange(8), help="Tokens that are read of a text while training.")
@click.option("--limit", type=click.IntRange(1), help="So many triplets only, drawn by the seed.")
@click.option("--language", default="english", show_default=True, help="Of BM25's stems and stop words; or none.")
@plan_options(epochs=20.0, batch=16, patience=3, rate=3e-5)
@run_options
def retriever(
    base: str,
    data: tuple[tuple[str, Path], ...],
    unit: Literal["exchange", "turn"],
    hard: int,
    far: int,
    positives: int,
    margin: float,
    window: int | None,
    limit: int | None,
    language: str,
    plan: "Plan",
    out: Path,
    name: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """An encoder that puts a question near to what answers it: triplet loss, with wrong texts that BM25 would take.

    One half of the conversations is learned from, the other measured before and after; a hash of ids divides them.
    """
    from finetune.run_folder import register
    from finetune.trainers.retriever import Job, table
    from finetune.trainers.retriever import train as run
    from finetune.triplets import Mining, read

    job = Job(
        base_folder(base),
        [read(kind, path, unit) for kind, path in data],
        [path for _, path in data],
        out,
        plan,
        Mining(positives, hard, far, language),
        margin,
        window,
        limit,
        command_line(),
    )
    trained, rows = run(job, resume=resume, note=note)
    if name:
        register(out, name, job.licence, role="encoder")
    if as_json:
        print_json({"out": str(out), "name": name, "report": [asdict(row) for row in rows], **asdict(trained)})
        return
    tell(trained, out, name, as_json=False)
    click.echo(table(rows))
