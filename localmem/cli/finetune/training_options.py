"""Options and output that the training commands share."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from finetune.run_folder import is_first_process
from finetune.trainers.training import TrainingJob, TrainingResult
from localmem.cli.options import Command, json_option, note, print_json

out_option = click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="Folder for the run.", metavar="DIR"
)
name_option = click.option("--name", help="Register the model under this name.", metavar="NAME")
resume_option = click.option("--resume", is_flag=True, help="Continue the run in --out.")


def run_options(command: Command) -> Command:
    """Add --out, --name, --resume and --json."""
    for option in (json_option, resume_option, name_option, out_option):
        command = option(command)
    return command


def make_job(recipe: BaseModel, out: Path, *, resume: bool = False, name: str | None = None) -> TrainingJob[Any]:
    """The job of the current command line, which reports to the terminal."""
    return TrainingJob(recipe, out, name, command_line(), resume, note)


def command_line() -> str:
    """The command line that repeats a run, for its card."""
    return shlex.join(["localmem", *sys.argv[1:]])


def print_result(result: TrainingResult, job: TrainingJob[Any], *, as_json: bool, **more: object) -> None:
    """Print the measures of a finished run, in the first process only; `more` are further entries of the JSON."""
    if not is_first_process():
        return
    if as_json:
        print_json({"out": str(job.out), "name": job.name, **asdict(result), **more})
        return
    for measure, value in result.measures.items():
        click.echo(f"{measure}: {value:.4f}")
    note(f"{result.steps} steps in {result.seconds:.0f} s; the model, its card and curves are in {job.out}")
