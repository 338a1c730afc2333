"""`localmem bench`: measurements of localmem. Knows how they look on a terminal; `localmem.benchmark` measures."""

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from localmem.cli.bench.latency import latency
from localmem.cli.bench.latency_report import compare, report
from localmem.cli.bench.retrieval import retrieval
from localmem.cli.options import config_option, json_option, note, print_json, settings_of, system_option

if TYPE_CHECKING:
    from localmem.benchmark.load import Measured, Plan
    from localmem.config import Settings


@click.group()
def bench() -> None:
    """Measure latency and load on this machine."""


bench.add_command(latency)
bench.add_command(retrieval)
bench.add_command(report)
bench.add_command(compare)


@bench.command()
@click.option("--users", type=click.IntRange(1), default=100, show_default=True, help="How many talk at once.")
@click.option("--turns", type=click.IntRange(1), help="Turns of each user; default 20 without --seconds.")
@click.option("--seconds", type=click.FloatRange(0.1), help="End after so long.")
@click.option(
    "--think", type=click.FloatRange(0), default=1.0, show_default=True, help="Mean pause of a user, in seconds."
)
@click.option("--answer", type=click.IntRange(1), default=30, show_default=True, help="Words of a reply.")
@click.option(
    "--first-token", type=click.FloatRange(0), default=0.2, show_default=True, help="Seconds to its first word."
)
@click.option(
    "--per-token", type=click.FloatRange(0), default=0.02, show_default=True, help="Seconds between its words."
)
@click.option("--seed", type=int, default=0, show_default=True, help="For words and pauses.")
@click.option("--samples", type=click.Path(path_type=Path), help="Write each turn's times here, JSONL.", metavar="FILE")
@click.option("--data", type=click.Path(path_type=Path), help="A folder for the store; default: one that is deleted.")
@config_option
@system_option
@json_option
def load(
    users: int,
    turns: int | None,
    seconds: float | None,
    think: float,
    answer: int,
    first_token: float,
    per_token: float,
    seed: int,
    samples: Path | None,
    data: Path | None,
    config: Path | None,
    system: str | None,
    as_json: bool,
) -> None:
    """Many users at once: how long until a turn is durable, and until it is answered.

    The store is real and on disk; the backbone is scripted and takes the given times. Afterwards the store is opened
    anew and every turn that was acknowledged is looked for in it.
    """
    from localmem.benchmark.load import Plan

    turns = 20 if turns is None and seconds is None else turns
    plan = Plan(
        users=users,
        turns=turns,
        seconds=seconds,
        think=think,
        answer=answer,
        first_token=first_token,
        per_token=per_token,
        seed=seed,
    )
    with tempfile.TemporaryDirectory(prefix="localmem-load-") as folder:
        settings = settings_of(config, data or Path(folder), None, system)
        report, measured = _measured(plan, settings)
    if samples:
        _write_samples(samples, measured)
    if as_json:
        print_json(report)
    else:
        click.echo(_table(report))
    if measured.failed or report["lost"]:
        sys.exit(1)


_FSYNCS = 100  # before the run, and again after it


def _measured(plan: "Plan", settings: "Settings") -> "tuple[dict[str, object], Measured]":
    from localmem.benchmark.load import fsync_ms, percentiles, run, script
    from localmem.errors import BadInput
    from localmem.llm.scripted import ScriptedLLM
    from localmem.reporting.provenance import machine, versions
    from localmem.runtime import Runtime

    before = machine(settings.data)
    llm = ScriptedLLM(script(plan), first_token=plan.first_token, per_token=plan.per_token)
    with Runtime(settings, llm=llm) as runtime:
        where = runtime.store.where
        if runtime.store.users():
            raise BadInput(f"{where} holds users already; give an empty folder as --data, and no database in settings")
        note(f"{plan.users} users talk; the store is at {where}")
        disk = fsync_ms(settings.data, _FSYNCS)
        measured = run(plan, runtime.agent)
        disk += fsync_ms(settings.data, _FSYNCS)
    lost = _lost(measured, settings)
    report = {
        **measured.figures(plan),
        "fsync_ms": percentiles(disk),
        "acknowledged": sum(map(len, measured.acknowledged.values())),
        "lost": len(lost),
        "plan": asdict(plan),
        "settings": settings.model_dump(mode="json", exclude={"server": {"keys"}, "llm": {"api_key"}}),
        "machine": before,
        "versions": versions(),
    }
    return report, measured


def _lost(measured: "Measured", settings: "Settings") -> list[str]:
    """Turns that were said to be durable and that a store opened anew does not hold."""
    from localmem.store import Store

    lost: list[str] = []
    with Store.open(settings.store_url) as store:
        for user, said in measured.acknowledged.items():
            sessions = [store.session(user, info.id) for info in store.sessions(user)]
            held = {turn.id: turn.text for session in sessions for turn in session.turns}
            lost += [turn_id for turn_id, text in said.items() if held.get(turn_id) != text]
    return lost


def _write_samples(path: Path, measured: "Measured") -> None:
    from localmem.benchmark.load import rows
    from localmem.files import write_jsonl

    write_jsonl(path, rows(measured), "choose another --samples")


def _table(report: Mapping[str, object]) -> str:
    from tabulate import tabulate

    kinds = {
        "the disk's fsync": "fsync_ms",
        "turn durable": "acknowledged_ms",
        "turn answered": "turn_ms",
        "beyond the backbone": "beyond_backbone_ms",
    }
    figures = [{"milliseconds": name, **cast("dict[str, float]", report[key])} for name, key in kinds.items()]
    plan, machine = cast("dict[str, object]", report["plan"]), cast("dict[str, object]", report["machine"])
    lines = [
        tabulate(figures, headers="keys", floatfmt=".2f"),
        f"{plan['users']} users, pause {plan['think']} s; failed: {report['failed'] or 0}",
        f"replies of {plan['answer']} words: {plan['first_token']} s to the first, {plan['per_token']} s for each more",
        f"{report['turns']} turns in {report['seconds']} s, {report['turns_per_second']} a second",
        f"{report['acknowledged']} turns acknowledged, {report['lost']} of them not found in the store afterwards",
        f"{machine['processor']}, {machine['usable_cores']} cores, load average {machine['load_average']} before",
        f"store on {machine['file_system']}",
    ]
    return "\n".join(lines)
