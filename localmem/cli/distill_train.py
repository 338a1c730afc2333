"""`localmem distill train`: a student learns what a teacher did in one stage or in several. Wires up `finetune`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import json_option, note
from localmem.cli.training import base_folder, command_line, out_option, plan_options, resume_option, tell

if TYPE_CHECKING:
    from finetune.training import Plan


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--stage", "stages", multiple=True, required=True, help="Several share one adapter.", metavar="X")
@click.option("--student", required=True, help="The chat model to start from: a name or a folder.", metavar="M")
@click.option("--rank", type=click.IntRange(1), default=16, show_default=True, help="Of the adapter.")
@click.option("--dora", is_flag=True, help="Learn direction and length of the weights apart.")
@click.option("--pack", type=click.IntRange(64), default=2048, show_default=True, help="Tokens of a row.")
@click.option(
    "--soft",
    type=click.FloatRange(0),
    default=0.5,
    show_default=True,
    help="Weight of the teacher's distribution over choices.",
)
@plan_options(epochs=3.0, batch=1, patience=2, rate=2e-4)
@out_option
@resume_option
@json_option
def train(
    folder: Path,
    stages: Sequence[str],
    student: str,
    rank: int,
    dora: bool,
    pack: int,
    soft: float,
    plan: "Plan",
    out: Path,
    resume: bool,
    as_json: bool,
) -> None:
    """Teach a student what a teacher did in these stages: a LoRA adapter, with its card and curves.

    DIR is a collection that was sifted. Serve the adapter with the setting llm.adapters, under the stage's prompt name.
    """
    from finetune.lora import Job
    from finetune.lora import train as run

    train_files, valid_files = ([folder / part / f"{stage}.jsonl" for stage in stages] for part in ("train", "valid"))
    job = Job(
        base_folder(student),
        train_files,
        valid_files,
        out,
        plan,
        rank=rank,
        dora=dora,
        pack=pack,
        soft=soft,
        command=command_line(),
    )
    tell(run(job, resume=resume, note=note), out, None, as_json=as_json)
