"""`localmem finetune`: small models trained from local weights and local data. Knows how it looks on a terminal."""

import shlex
import sys
from pathlib import Path
from typing import Literal

import click

from localmem.cli.options import json_option, note, print_json


@click.group()
def finetune() -> None:
    """Train the small models that spare the big one: from local weights, on local data."""


@finetune.command()
@click.option(
    "--base", default="minilm-l6-v2", show_default=True, help="The encoder to start from: a name or a folder."
)
@click.option(
    "--train",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="Labelled dialogues (TIAGE, SuperDialSeg, DialSeg711); may be given again.",
    metavar="FILE",
)
@click.option(
    "--valid",
    type=click.Path(path_type=Path),
    multiple=True,
    help="To stop early and choose the threshold on; default: a tenth of the others.",
    metavar="FILE",
)
@click.option("--limit", type=click.IntRange(2), help="The first so many dialogues only.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The run's folder.", metavar="DIR")
@click.option("--name", help="Register the model under this name.")
@click.option("--epochs", type=click.FloatRange(0, min_open=True), default=4.0, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=32, show_default=True, help="Gaps a step.")
@click.option(
    "--accumulate", type=click.IntRange(1), default=1, show_default=True, help="Batches a step of the optimiser."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=5e-5, show_default=True, help="Learning rate.")
@click.option(
    "--patience", type=click.IntRange(1), default=2, show_default=True, help="Epochs without gain before the end."
)
@click.option("--precision", type=click.Choice(["auto", "float32", "bfloat16"]), default="auto", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint of --out.")
@json_option
def segmenter(
    base: str,
    train: tuple[Path, ...],
    valid: tuple[Path, ...],
    limit: int | None,
    out: Path,
    name: str | None,
    epochs: float,
    batch: int,
    accumulate: int,
    rate: float,
    patience: int,
    precision: Literal["auto", "float32", "bfloat16"],
    seed: int,
    resume: bool,
    as_json: bool,
) -> None:
    """A classifier of the gaps in a dialogue: does a new topic begin here? SeCom then cuts sessions without the LLM."""
    from finetune.run import register
    from finetune.segmenter import Job
    from finetune.segmenter import train as run
    from finetune.training import Plan

    plan = Plan(
        epochs=epochs,
        batch=batch,
        accumulate=accumulate,
        learning_rate=rate,
        patience=patience,
        precision=precision,
        seed=seed,
    )
    command = shlex.join(["localmem", *sys.argv[1:]])
    job = Job(_folder(base), train, valid, out, plan, limit=limit, command=command)
    trained = run(job, resume=resume, note=note)
    if name:
        register(out, name, job.licence)
    if as_json:
        print_json({"out": str(out), "measures": trained.measures, "seconds": trained.seconds, "name": name})
        return
    for measure, value in trained.measures.items():
        click.echo(f"{measure}: {value:.4f}")
    note(f"{trained.steps} steps in {trained.seconds:.0f} s; the model, its card and curves are in {out}")


def _folder(base: str) -> Path:
    """A folder as it is given, else that of a model of this name."""
    from localmem.weights import model_path

    return Path(base) if Path(base).is_dir() else model_path(base)
