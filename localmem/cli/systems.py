"""`localmem systems`: the memory systems, what each remembers, when it asks the model, and what that costs."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import SettingsFlags, json_option, note, print_json, print_table, settings_options

if TYPE_CHECKING:
    from localmem.experiments.demo import SystemCost


@click.command()
@settings_options("model", "config")
@click.option("--system", "names", multiple=True, help="List only this system. Repeatable.", metavar="NAME")
@click.option("--measure", is_flag=True, help="Replay a conversation and count calls and tokens (minutes).")
@click.option("--log", type=click.Path(path_type=Path), help="Conversation to replay (default: demo).", metavar="FILE")
@json_option
def systems(flags: SettingsFlags, names: tuple[str, ...], measure: bool, log: Path | None, as_json: bool) -> None:
    """List the memory systems.

    With --measure each one replays a conversation on the backbone, and the table shows what its memory work costs per
    turn. Replies are not counted: they cost the same with every system.
    """
    from tqdm import tqdm

    from localmem.config import system_options
    from localmem.experiments.demo import measure_systems, with_system
    from localmem.factory import SYSTEMS

    settings = flags.load()
    options = {name: system_options(name, with_system(settings, name).options) for name in names or SYSTEMS}
    costs: dict[str, SystemCost] = {}
    if measure:
        track = partial(tqdm, desc="measuring", unit="system", disable=None)
        costs = measure_systems(settings, list(options), conversation=log, notify=note, track=track)
    if as_json:
        print_json([_document(name, options[name], costs.get(name), settings.model) for name in options])
    else:
        _print(options, costs)


def _document(name: str, options: Mapping[str, object], cost: "SystemCost | None", model: str) -> dict[str, object]:
    from localmem.config import system_variants
    from localmem.factory import SYSTEMS

    system = SYSTEMS[name]
    document: dict[str, object] = {
        "name": name,
        "remembers": system.remembers,
        "calls": system.llm_calls,
        "options": options,
        "variants": system_variants(name),
    }
    return document if cost is None else {**document, "model": model, "cost": asdict(cost)}


def _print(options: Mapping[str, Mapping[str, object]], costs: "Mapping[str, SystemCost]") -> None:
    from localmem.config import system_variants
    from localmem.factory import SYSTEMS

    headers = ["system", "what it remembers", "calls of the model"]
    rows = [[name, SYSTEMS[name].remembers, SYSTEMS[name].llm_calls] for name in options]
    if costs:
        headers += ["calls/turn", "tokens in/turn", "out/turn", "recalled/turn", "units"]
        for row, cost in zip(rows, costs.values(), strict=True):
            totals = (cost.input_tokens, cost.output_tokens, cost.recalled_tokens)
            row += [f"{cost.per_turn(cost.calls):.2f}", *(f"{cost.per_turn(total):.0f}" for total in totals)]
            row.append(str(cost.units))
    else:
        headers += ["options", "variants"]
        rows = [[*row, ", ".join(options[row[0]]), ", ".join(system_variants(row[0]))] for row in rows]
    print_table(rows, headers, maxcolwidths=[None, 28, 24, *[28] * (len(headers) - 3)])
