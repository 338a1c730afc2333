"""`localmem settings`, `doctor`, `systems` and `demo`: what is configured, what works, what there is to choose from."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

from localmem import network_guard
from localmem.cli.options import SettingsFlags, json_option, note, print_json, print_table, settings_options

if TYPE_CHECKING:
    from localmem.experiments.demo import DemoReply, DemoReport, SystemCost


_SHOWN = 240  # characters of a reply


@click.command()
@settings_options("user", "system", "model", "data_dir", "config")
@json_option
def settings(flags: SettingsFlags, as_json: bool) -> None:
    """List all settings and their sources.

    A setting comes from the first of these that sets it: a command's flag, an environment variable (LOCALMEM_SYSTEM,
    LOCALMEM_LLM__URL), the file of --config, your own settings file, the default. Your own file is
    ~/.config/localmem/settings.yaml ($XDG_CONFIG_HOME/localmem/settings.yaml if that is set), or the file that
    LOCALMEM_CONFIG names. Both files are YAML, for example:

    \b
        system: rsum
        llm: {url: "http://127.0.0.1:8000/v1"}
    """
    from localmem.config import list_settings

    rows = list_settings(flags.config, flags.values)
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    table = [[row.key, _text(row.value), row.source, row.description] for row in rows]
    widths = [None, 18, 18, max(24, min(60, get_terminal_size().columns - 70))]
    print_table(table, ["setting", "value", "source", "description"], maxcolwidths=widths, disable_numparse=True)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@click.command()
@settings_options("data_dir", "config")
@click.option("--repair", type=click.Path(path_type=Path), help="Save what can be read of the store.", metavar="DIR")
@json_option
def doctor(flags: SettingsFlags, repair: Path | None, as_json: bool) -> None:
    """Check installation, models, store and network.

    Exits with 1 if something that the settings need is missing or broken. With --repair it checks nothing: what can
    be read of a damaged store is saved into a new data directory, and the store itself stays as it is.
    """
    if repair is not None:
        _repair(flags, repair, as_json=as_json)
        return
    settings, unguarded = flags.read(), network_guard.why_not_isolated()  # before anything starts a thread
    from localmem.runtime.diagnostics import check_all

    findings = check_all(settings, unguarded)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        rows = [[row.area, row.subject, row.state.replace("bad", "BAD"), row.detail] for row in findings]
        print_table(rows, (), tablefmt="plain")
    sys.exit(any(finding.state == "bad" for finding in findings))


def _repair(flags: SettingsFlags, folder: Path, *, as_json: bool) -> None:
    from localmem.store.opening import settings_keys
    from localmem.store.repair import lost_counts, repair

    settings = flags.load()
    summary = repair(settings.data, folder, settings_keys(settings))
    if as_json:
        print_json(asdict(summary))
        return
    click.echo(f"saved in {folder}: {', '.join(f'{count} {table}' for table, count in summary.saved.items() if count)}")
    click.echo(f"lost: {', '.join(lost_counts(summary.lost)) or 'nothing'}")
    if summary.rebuilt:
        note(f"{len(summary.rebuilt)} memories lost rows; their sessions wait to be read again from the log")


@click.command()
@settings_options("model", "config")
@click.option(
    "--system", "names", multiple=True, help="List only this system, or SYSTEM/VARIANT. Repeatable.", metavar="NAME"
)
@click.option("--measure", is_flag=True, help="Replay a conversation and count calls and tokens (minutes).")
@click.option(
    "--log", type=click.Path(path_type=Path), help="Conversation to replay (default: Nina's).", metavar="FILE"
)
@json_option
def systems(flags: SettingsFlags, names: tuple[str, ...], measure: bool, log: Path | None, as_json: bool) -> None:
    """List the memory systems.

    With --measure each one replays a conversation on the backbone, and the table shows what its memory work costs per
    turn. Replies are not counted: they cost the same with every system. `refused` counts the model's texts that did
    not become memory (placeholders, loops, copies of the prompt, what no source says, duplicates), `fallbacks` its
    answers that could not be used.
    """
    settings = flags.load()
    from tqdm import tqdm

    from localmem.config import system_options
    from localmem.experiments.demo import measure_systems, with_system
    from localmem.factory import SYSTEMS

    by_system = {name: with_system(settings, name) for name in names or SYSTEMS}
    options = {name: system_options(own.system, own.options) for name, own in by_system.items()}
    costs: dict[str, SystemCost] = {}
    if measure:
        track = partial(tqdm, desc="measuring", unit="system", disable=None)
        costs = measure_systems(settings, list(options), conversation=log, notify=note, track=track)
    if as_json:
        print_json([_system_document(name, options[name], costs.get(name), settings.model) for name in options])
    else:
        _print_systems(options, costs)


def _system_document(
    name: str, options: Mapping[str, object], cost: "SystemCost | None", model: str
) -> dict[str, object]:
    from localmem.config import system_variants
    from localmem.factory import SYSTEMS

    system = SYSTEMS[name.partition("/")[0]]
    document: dict[str, object] = {
        "name": name,
        "remembers": system.remembers,
        "calls": system.llm_calls,
        "options": options,
        "variants": [] if "/" in name else system_variants(name),
    }
    return document if cost is None else {**document, "model": model, "cost": asdict(cost)}


def _print_systems(options: Mapping[str, Mapping[str, object]], costs: "Mapping[str, SystemCost]") -> None:
    from localmem.config import system_variants
    from localmem.factory import SYSTEMS

    headers = ["system", "what it remembers", "calls of the model"]
    systems = {name: SYSTEMS[name.partition("/")[0]] for name in options}
    rows = [[name, system.remembers, system.llm_calls] for name, system in systems.items()]
    if costs:
        headers += ["calls/turn", "tokens in/turn", "out/turn", "recalled/turn", "units", "refused", "fallbacks"]
        for row, cost in zip(rows, costs.values(), strict=True):
            totals = (cost.input_tokens, cost.output_tokens, cost.recalled_tokens)
            row += [f"{cost.per_turn(cost.calls):.2f}", *(f"{cost.per_turn(total):.0f}" for total in totals)]
            row += [str(cost.units), str(sum(cost.refused.values())), str(sum(cost.fallbacks.values()))]
    else:
        headers += ["options", "variants"]
        variants = {name: [] if "/" in name else system_variants(name) for name in options}
        rows = [[*row, ", ".join(options[row[0]]), ", ".join(variants[row[0]])] for row in rows]
    print_table(rows, headers, maxcolwidths=[None, 28, 24, *[28] * (len(headers) - 3)])


@click.command()
@settings_options("system", "model", "config")
@json_option
def demo(flags: SettingsFlags, as_json: bool) -> None:
    """Show replies with and without memory.

    Reads a shipped conversation of three sessions into a temporary memory and asks the model 20 questions about it,
    and for five things that need no memory.
    """
    flags.load()  # gives up the network
    from localmem.experiments.demo import run_demo

    report = run_demo(flags.config, flags.values, note)
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        _print_demo(report)


def _beginning(reply: "DemoReply") -> str:
    """As much of a reply as a table can show; --json has it all."""
    text = " ".join(reply.answer.split()) if len(reply.answer) > _SHOWN else reply.answer
    return f"{text[:_SHOWN].rstrip()} [...]" if len(text) > _SHOWN else text


def _print_demo(report: "DemoReport") -> None:
    opening = report.opening
    click.echo(f"\nA new day. The user says: {opening.question}\n")
    click.echo(f"Recalled:\n{opening.with_memory.recalled}\n")
    click.echo(f"{report.model} with memory ({report.system}):\n  {_beginning(opening.with_memory)}\n")
    click.echo(f"{report.model} without memory:\n  {_beginning(opening.without_memory)}\n")
    rows = [
        [
            "yes" if pair.with_memory.right else "no",
            pair.question,
            _beginning(pair.with_memory),
            _beginning(pair.without_memory),
        ]
        for pair in report.questions
    ]
    print_table(rows, ["right", "question", "with memory", "without"], maxcolwidths=[None, 36, 38, 36])
    others = [
        [pair.question, _beginning(pair.with_memory), _beginning(pair.without_memory)] for pair in report.ordinary
    ]
    print_table(others, ["needs no memory", "with memory", "without"], maxcolwidths=[36, 41, 41])
    with_memory, without_memory = report.count_right()
    click.echo(f"\nright with memory:    {with_memory} of {len(rows)}")
    click.echo(f"right without memory: {without_memory} of {len(rows)}")
    refused, refused_without = report.count_refused()
    click.echo(f"other requests refused: {refused} of {len(others)} with memory, {refused_without} without")
