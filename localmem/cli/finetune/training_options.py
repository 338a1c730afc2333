"""What the commands of `localmem finetune` share: the options of a training plan, a run's folder, how it is told.

Imports nothing heavy at the top: help must be instant.
"""

import shlex
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import Option, json_option, note, print_json

if TYPE_CHECKING:
    from finetune.trainers.training import Trained

_PLAN = ("epochs", "batch", "accumulate", "learning_rate", "patience", "precision", "seed")

out_option = click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The run's folder.", metavar="DIR"
)
name_option = click.option("--name", help="Register the model under this name.")
resume_option = click.option("--resume", is_flag=True, help="Go on from the last checkpoint of --out.")


base_option = click.option(
    "--base", default="minilm-l6-v2", show_default=True, help="The encoder to start from: a name or a folder."
)
licence_option = click.option(
    "--licence",
    default="that of the base model and of the training data",
    show_default=True,
    help="What may be done with the weights, for their card and the manifest.",
    metavar="TEXT",
)


def files_option(name: str, text: str, *, required: bool = False) -> Option:
    """Files of examples; the option may be given again, which its help says after `text`."""
    kind, told = click.Path(path_type=Path), f"{text} May be given again."
    return click.option(name, type=kind, multiple=True, required=required, help=told, metavar="FILE")


def plan_options(*, epochs: float, batch: int, patience: int, rate: float = 5e-5) -> Option:
    """Options of a `finetune.trainers.training.Plan` with these defaults; the command receives it as `plan`."""
    options: tuple[Option, ...] = (
        click.option("--epochs", type=click.FloatRange(0, min_open=True), default=epochs, show_default=True),
        click.option("--batch", type=click.IntRange(1), default=batch, show_default=True, help="Examples a step."),
        click.option(
            "--accumulate",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Batches an optimiser step.",
        ),
        click.option(
            "--rate",
            "learning_rate",
            type=click.FloatRange(0, min_open=True),
            default=rate,
            show_default=True,
            help="Learning rate.",
        ),
        click.option(
            "--patience",
            type=click.IntRange(1),
            default=patience,
            show_default=True,
            help="Epochs without gain before the end.",
        ),
        click.option(
            "--precision", type=click.Choice(["auto", "float32", "bfloat16"]), default="auto", show_default=True
        ),
        click.option("--seed", type=int, default=0, show_default=True),
    )

    def decorate(command: Callable[..., object]) -> Callable[..., object]:
        @wraps(command)
        def planned(**given: object) -> object:
            from finetune.trainers.training import Plan

            plan = Plan(**{name: given.pop(name) for name in _PLAN})  # type: ignore[arg-type]  # checked by click
            return command(plan=plan, **given)

        decorated: Callable[..., object] = planned
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def run_options(command: Callable[..., object]) -> Callable[..., object]:
    """--out, --name, --resume, --json."""
    for option in (json_option, resume_option, name_option, out_option):
        command = option(command)
    return command


def command_line() -> str:
    """The line that makes a run again, as its card tells it."""
    return shlex.join(["localmem", *sys.argv[1:]])


def base_folder(base: str) -> Path:
    """A folder as it is given, else that of a model of this name. Raises ModelMissing."""
    from localmem.weights import model_path

    return Path(base) if Path(base).is_dir() else model_path(base)


def tell(trained: "Trained", out: Path, name: str | None, *, as_json: bool) -> None:
    """The measures of a finished run on stdout."""
    if as_json:
        print_json({"out": str(out), "measures": trained.measures, "seconds": trained.seconds, "name": name})
        return
    for measure, value in trained.measures.items():
        click.echo(f"{measure}: {value:.4f}")
    note(f"{trained.steps} steps in {trained.seconds:.0f} s; the model, its card and curves are in {out}")
