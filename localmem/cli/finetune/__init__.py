"""`localmem finetune`: small models trained from local weights and local data. Knows how it looks on a terminal."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.finetune.compressor import compressor
from localmem.cli.finetune.operations import operations
from localmem.cli.finetune.retriever import retriever
from localmem.cli.finetune.training_options import (
    base_folder,
    base_option,
    command_line,
    files_option,
    plan_options,
    run_options,
    tell,
)
from localmem.cli.options import note

if TYPE_CHECKING:
    from finetune.trainers.training import Plan


@click.group()
def finetune() -> None:
    """Train the small models that spare the big one: from local weights, on local data."""


@finetune.command()
@base_option
@files_option("--train", "Labelled dialogues (TIAGE, SuperDialSeg, DialSeg711).", required=True)
@files_option("--valid", "To stop early and choose the threshold on; default: a tenth of the others.")
@click.option("--limit", type=click.IntRange(2), help="The first so many dialogues only.")
@click.option(
    "--light",
    is_flag=True,
    help="Leave the encoder as it is and weigh what its vectors tell of each gap: minutes, and no plan to follow.",
)
@plan_options(epochs=4.0, batch=32, patience=2)
@run_options
def segmenter(
    base: str,
    train: tuple[Path, ...],
    valid: tuple[Path, ...],
    limit: int | None,
    light: bool,
    plan: "Plan",
    out: Path,
    name: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """A classifier of the gaps in a dialogue: does a new topic begin here? SeCom then cuts sessions without the LLM."""
    from finetune.run_folder import register
    from finetune.trainers.segmenter import Job
    from finetune.trainers.segmenter import train as run

    job = Job(base_folder(base), train, valid, out, plan, limit=limit, command=command_line())
    if light:
        from finetune.trainers.texttiling import LightJob
        from finetune.trainers.texttiling import train as run_light

        easy = LightJob(job.base, train, valid, out, limit, plan.seed, job.licence, job.command)
        trained = run_light(easy, note=note)
    else:
        trained = run(job, resume=resume, note=note)
    if name:
        register(out, name, job.licence)
    tell(trained, out, name, as_json=as_json)


finetune.add_command(compressor)
finetune.add_command(operations)
finetune.add_command(retriever)
