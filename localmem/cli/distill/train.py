"""`localmem distill train`: a student learns what a teacher did in one stage or in several. Wires up `finetune`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from localmem.cli.finetune.training_options import (
    base_folder,
    command_line,
    out_option,
    plan_options,
    resume_option,
    tell,
)
from localmem.cli.options import json_option, note
from localmem.errors import BadInput

if TYPE_CHECKING:
    from finetune.small_models import Kind
    from finetune.trainers.training import Plan, Trained

ALL = "all"
FRESH = "t5:"

# What a part learns best with, where the user says nothing else: the defaults of `localmem finetune`.
_PLANS: Mapping[str, Mapping[str, float]] = {
    "operation": {"epochs": 20.0, "batch": 8, "patience": 3, "learning_rate": 5e-5},
    "segment": {"epochs": 4.0, "batch": 32, "patience": 2, "learning_rate": 5e-5},
}
_FRESH_RATE = 1e-3  # of a T5 from nothing: 5e-5 suits weights that know something


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--stage", "stages", multiple=True, required=True, help="Several, or all, share one adapter.", metavar="X"
)
@click.option(
    "--student",
    required=True,
    help="A chat model, an encoder or a T5 to start from: a name or a folder; t5:tiny: one from nothing.",
    metavar="M",
)
@click.option("--start", type=click.Path(path_type=Path), help="Go on from this adapter, a run's --out.", metavar="RUN")
@click.option("--rank", type=click.IntRange(1), default=16, show_default=True, help="Of the adapter.")
@click.option(
    "--dora",
    is_flag=True,
    help="Learn direction and length of the weights apart; such an adapter is served merged only.",
)
@click.option("--qlora", is_flag=True, help="Hold the base model in 4 bits while it learns; needs bitsandbytes.")
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
    start: Path | None,
    rank: int,
    dora: bool,
    qlora: bool,
    pack: int,
    soft: float,
    plan: "Plan",
    out: Path,
    resume: bool,
    as_json: bool,
) -> None:
    """Teach a student what a teacher did in these stages: a LoRA adapter, with its card and curves.

    DIR is a collection that was sifted. Serve the adapter with the setting llm.adapters, under the stage's prompt name.
    For the stages operation and segment the student may be an encoder, for operation also a T5: then it learns as
    `localmem finetune` teaches it, by default with the plan of that command, and is the system's part of that kind.
    """
    from finetune.run_folder import first_process
    from finetune.small_models import kind_of
    from finetune.trainers.lora import Job
    from finetune.trainers.lora import train as run

    base: str | Path = student if student.startswith(FRESH) else base_folder(student)
    chosen = _stages(folder, stages)
    if (kind := kind_of(base)) != "chat":
        trained = _train_part(folder, chosen, base, kind, plan, out, resume=resume)
    else:
        train_files, valid_files = (
            [folder / part / f"{stage}.jsonl" for stage in chosen] for part in ("train", "valid")
        )
        job = Job(
            Path(base),
            train_files,
            valid_files,
            out,
            plan,
            start=start,
            rank=rank,
            dora=dora,
            quantised=qlora,
            pack=pack,
            soft=soft,
            command=command_line(),
        )
        trained = run(job, resume=resume, note=note)
    if first_process():
        tell(trained, out, None, as_json=as_json)


def _stages(folder: Path, given: Sequence[str]) -> list[str]:
    """As they were named; `all` is every stage of the collection."""
    held = sorted(path.stem for path in (folder / "train").glob("*.jsonl"))
    if not held:
        raise BadInput(f"{folder} holds nothing to learn from; run `localmem distill sift {folder}` first")
    chosen = held if ALL in given else list(dict.fromkeys(given))
    if unknown := [stage for stage in chosen if stage not in held]:
        raise BadInput(f"{folder / 'train'} holds no stage {', '.join(unknown)}; it holds {', '.join(held)}")
    return chosen


def _train_part(
    folder: Path, stages: Sequence[str], base: str | Path, kind: "Kind", plan: "Plan", out: Path, *, resume: bool
) -> "Trained":
    from finetune.small_models import check_stage, lesson
    from finetune.small_models import train as run

    given = [name for name in ("start", "rank", "dora", "qlora", "pack", "soft") if _was_given(name)]
    if given:
        raise click.UsageError(f"an encoder or a T5 takes no adapter: leave --{', --'.join(given)} away")
    stage = check_stage(stages, kind)
    learned = lesson(folder, stage)
    if learned.passed_over:
        note(f"{learned.passed_over} traces are asked otherwise and left out")
    return run(stage, base, learned, _plan(plan, stage, base), out, command_line(), resume=resume, note=note)


def _plan(plan: "Plan", stage: str, base: str | Path) -> "Plan":
    """What the user said, and for the rest what suits the part."""
    wanted = {**_PLANS[stage], **({"learning_rate": _FRESH_RATE} if isinstance(base, str) else {})}
    return replace(plan, **{name: value for name, value in wanted.items() if not _was_given(name)})  # type: ignore[arg-type]  # two are whole numbers


def _was_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is not ParameterSource.DEFAULT
