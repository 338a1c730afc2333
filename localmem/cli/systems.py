"""`localmem systems`: the memory systems, what each remembers and when it asks the model, and what that costs."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of

if TYPE_CHECKING:
    from localmem.benchmark.cost import Cost
    from localmem.config import Settings


@click.command()
@config_option
@model_option
@click.option("--system", "only", multiple=True, help="Only this one; may be given again.", metavar="S")
@click.option("--measure", is_flag=True, help="Replay a conversation with each and count calls and tokens (minutes).")
@click.option("--log", type=click.Path(path_type=Path), help="The conversation; default: the demo's.", metavar="FILE")
@json_option
def systems(
    config: Path | None, model: str | None, only: tuple[str, ...], measure: bool, log: Path | None, as_json: bool
) -> None:
    """List the memory systems; --system of other commands takes their names.

    With --measure each replays a conversation on the backbone, and what its memory work costs a turn is shown: replies
    themselves are not counted, for they cost the same with every system.
    """
    from localmem.config import system_options
    from localmem.factory import SYSTEMS

    settings = settings_of(config, model=model)
    options = {name: system_options(name, _own(settings, name)) for name in only or SYSTEMS}
    costs = _costs(settings, list(options), log) if measure else {}
    if as_json:
        print_json([_row(name, options[name], costs.get(name), settings) for name in options])
        return
    _print(list(options), options, costs)


def _own(settings: "Settings", name: str) -> Mapping[str, object]:
    """The options of --config, for the system that it names."""
    return settings.options if settings.system == name else {}


def _row(name: str, options: dict[str, object], cost: "Cost | None", settings: "Settings") -> dict[str, object]:
    from localmem.factory import SYSTEMS

    system = SYSTEMS[name]
    row: dict[str, object] = {"name": name, "remembers": system.remembers, "calls": system.calls, "options": options}
    return row if cost is None else {**row, "model": settings.model, "cost": asdict(cost)}


def _print(names: list[str], options: dict[str, dict[str, object]], costs: "dict[str, Cost]") -> None:
    from tabulate import tabulate

    from localmem.factory import SYSTEMS

    head = ["system", "what it remembers", "asks the model"]
    rows = [[name, SYSTEMS[name].remembers, SYSTEMS[name].calls] for name in names]
    if costs:
        head += ["calls/turn", "tokens in/turn", "out/turn", "shown/turn", "units"]
        for row, cost in zip(rows, (costs[name] for name in names), strict=True):
            row.append(f"{cost.a_turn(cost.calls):.2f}")
            row += [f"{cost.a_turn(total):.0f}" for total in (cost.input_tokens, cost.output_tokens, cost.shown)]
            row.append(str(cost.units))
    else:
        head.append("options")
        rows = [[*row, ", ".join(options[row[0]])] for row in rows]
    click.echo(tabulate(rows, head, maxcolwidths=[None, 32, 32, *[36] * (len(head) - 3)]))


def _costs(settings: "Settings", names: list[str], log: Path | None) -> "dict[str, Cost]":
    """Each system over the conversation, on one backbone and one encoder."""
    import tempfile
    from functools import partial

    from tqdm import tqdm

    from localmem import factory
    from localmem.benchmark.cost import cost
    from localmem.llm.wrappers import Meter
    from localmem.resources import resource
    from localmem.runtime import Runtime
    from localmem.store.conversation_files import Names, read_sessions

    sessions = read_sessions(log or resource("configs/demo/conversation.jsonl"), Names())
    found: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory(prefix="localmem-systems-") as place:
        held = settings.model_copy(update={"data": Path(place), "database": None})
        with Runtime(held, progress=note) as runtime:
            for name in tqdm(names, desc="measuring", unit="system", disable=None):
                meter = Meter(runtime.llm.inner)
                index = partial(factory.retriever, held, runtime.encoder, before=factory.SYSTEMS[name].before)
                parts = factory.Parts(meter, index)
                chosen = held.model_copy(update={"system": name, "options": _own(settings, name)})
                found[name] = cost(factory.memory(chosen, parts), meter, sessions)
    return found
