"""`localmem finetune operations`: classifiers of CareCall's operations trained, compared, or given data by an LLM."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from localmem.cli.finetune.training_options import (
    base_folder,
    command_line,
    files_option,
    licence_option,
    plan_options,
    run_options,
    tell,
)
from localmem.cli.options import config_option, note, print_json, settings_of

if TYPE_CHECKING:
    from finetune.comparison import Row
    from finetune.trainers.operation_classifier import Job
    from finetune.trainers.training import Plan

Regime = Literal["scratch", "zero-shot", "transfer"]


@click.command()
@click.option(
    "--base",
    "bases",
    multiple=True,
    default=("minilm-l6-v2",),
    show_default=True,
    help="An encoder or a T5 to start from, by name or folder; t5:tiny, t5:mini, t5:small: a T5 from nothing.",
)
@click.option(
    "--regime",
    "regimes",
    type=click.Choice(["scratch", "zero-shot", "transfer"]),
    multiple=True,
    default=("scratch",),
    show_default=True,
    help="Operations only; inference only, read through the paper's mapping; inference, then operations.",
)
@files_option(
    "--data",
    "Operation pairs, JSONL of memory, summary, label and group; default: the shipped ones.",
)
@files_option("--nli", "Inference pairs (SICK, SNLI, MultiNLI, KLUE-NLI).")
@files_option("--nli-valid", "To stop the learning of inference on; default: a tenth of the others.")
@click.option("--nli-epochs", type=click.FloatRange(0, min_open=True), default=3.0, show_default=True)
@click.option("--limit", type=click.IntRange(2), help="The first so many inference pairs only.")
@click.option("--window", type=click.IntRange(8), default=128, show_default=True, help="Tokens of a pair.")
@click.option("--balance", is_flag=True, help="Weigh each label by how rare it is.")
@click.option(
    "--apart",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Lower layers of a BERT that read a pair's texts apart: faster in batches, and less accurate.",
)
@click.option(
    "--folds", type=click.IntRange(2), help="Compare bases and regimes by so many folds; trains no model to keep."
)
@click.option(
    "--seeds", type=click.IntRange(1), default=1, show_default=True, help="With --folds: divisions and trainings."
)
@click.option(
    "--fresh-rate",
    type=click.FloatRange(0, min_open=True),
    default=1e-3,
    show_default=True,
    help="Learning rate of a T5 from nothing.",
)
@click.option(
    "--label-with",
    "teacher",
    help="Make operation pairs out of --conversations with this backbone instead of training; --out is the file.",
    metavar="MODEL",
)
@click.option(
    "--conversations", type=click.Path(path_type=Path), help="With --label-with: JSONL of sessions.", metavar="FILE"
)
@licence_option
@config_option
@plan_options(epochs=20.0, batch=8, patience=3)
@run_options
def operations(
    bases: tuple[str, ...],
    regimes: tuple[Regime, ...],
    data: tuple[Path, ...],
    nli: tuple[Path, ...],
    nli_valid: tuple[Path, ...],
    nli_epochs: float,
    limit: int | None,
    window: int,
    balance: bool,
    apart: int,
    folds: int | None,
    seeds: int,
    fresh_rate: float,
    teacher: str | None,
    conversations: Path | None,
    licence: str,
    config: Path | None,
    plan: "Plan",
    out: Path,
    name: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """A classifier of what a new sentence does to a remembered one: PASS, APPEND, REPLACE or DELETE.

    CareCall takes it as its option `classifier`, and then asks the LLM for summaries only.
    """
    if (teacher is None) != (conversations is None):
        raise click.UsageError("--label-with and --conversations go together: a teacher needs conversations to label")
    if teacher is not None and conversations is not None:
        _label(teacher, conversations, config, out, resume=resume, as_json=as_json)
        return
    from dataclasses import replace

    from finetune.pairs import SHIPPED
    from finetune.trainers.operation_classifier import Job

    job = Job(
        base=_start(bases[0]),
        out=out,
        plan=plan,
        regime=regimes[0],
        data=data or (SHIPPED,),
        nli=nli,
        nli_valid=nli_valid,
        nli_plan=replace(plan, epochs=nli_epochs),
        balance=balance,
        apart=apart,
        window=window,
        limit=limit,
        licence=licence,
        command=command_line(),
    )
    if folds:
        _compare(job, bases, regimes, folds, seeds, fresh_rate, resume=resume, as_json=as_json)
        return
    if len(bases) > 1 or len(regimes) > 1:
        raise click.UsageError("several --base or --regime are compared, not trained: add --folds")
    _train(job, fresh_rate, name, resume=resume, as_json=as_json)


def _start(base: str) -> str | Path:
    return base if base.startswith("t5:") else base_folder(base)


def _train(job: "Job", fresh_rate: float, name: str | None, *, resume: bool, as_json: bool) -> None:
    from finetune.run_folder import register
    from finetune.trainers.operation_classifier import at_fresh_rate, train

    trained = train(at_fresh_rate(job, fresh_rate), resume=resume, note=note)
    if name:
        register(job.out, name, job.licence, role="nli" if job.regime == "zero-shot" else "classifier")
    tell(trained, job.out, name, as_json=as_json)


def _compare(
    job: "Job",
    bases: tuple[str, ...],
    regimes: tuple[Regime, ...],
    folds: int,
    seeds: int,
    fresh_rate: float,
    *,
    resume: bool,
    as_json: bool,
) -> None:
    from dataclasses import asdict

    from finetune.comparison import Wanted, compare, write

    wanted = Wanted(job, [_start(base) for base in bases], regimes, folds, seeds, fresh_rate)
    rows = compare(wanted, resume=resume, note=note)
    write(rows, wanted)
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        click.echo(_table(rows))


def _table(rows: "list[Row]") -> str:
    from tabulate import tabulate

    return tabulate([row.told() for row in rows], headers="keys", disable_numparse=True)


def _label(teacher: str, conversations: Path, config: Path | None, out: Path, *, resume: bool, as_json: bool) -> None:
    from finetune.operation_labels import label
    from localmem import factory
    from localmem.store.conversation_files import Names, read_sessions

    settings = settings_of(config, model=teacher)
    sessions = read_sessions(conversations, Names(user=settings.chat.user_name, assistant=settings.chat.assistant_name))
    backbone = factory.backbone(settings, note)
    try:
        told = label(backbone.llm, sessions, out, resume=resume, progress=_progress)
    finally:
        backbone.close()
    if as_json:
        print_json({"out": str(out), **told})
    else:
        click.echo(", ".join(f"{name}: {number}" for name, number in told.items()))


def _progress(step: str, done: int, of: int) -> None:
    """A line that is written over on a terminal; nothing in a pipe."""
    if sys.stderr.isatty():
        click.echo(f"\r{step} {done}/{of}", nl=done == of, err=True)
