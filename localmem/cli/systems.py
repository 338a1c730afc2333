"""`localmem systems`: the memory systems, what each remembers and when it asks the model."""

import click

from localmem.cli.options import json_option, print_json


@click.command()
@json_option
def systems(as_json: bool) -> None:
    """List the memory systems; --system takes their names."""
    from tabulate import tabulate

    from localmem.build import SYSTEMS
    from localmem.config import system_options

    rows = [
        {"name": name, "remembers": system.remembers, "calls": system.calls, "options": system_options(name, {})}
        for name, system in SYSTEMS.items()
    ]
    if as_json:
        print_json(rows)
        return
    table = [
        [row["name"], row["remembers"], row["calls"], ", ".join(f"{k}={v}" for k, v in dict(row["options"]).items())]  # type: ignore[call-overload]
        for row in rows
    ]
    click.echo(tabulate(table, ["system", "what it remembers", "asks the model", "options"]))
