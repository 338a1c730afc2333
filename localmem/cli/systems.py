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

    options = {name: system_options(name, {}) for name in SYSTEMS}
    if as_json:
        print_json(
            [{"name": n, "remembers": s.remembers, "calls": s.calls, "options": options[n]} for n, s in SYSTEMS.items()]
        )
        return
    table = [[name, system.remembers, system.calls, ", ".join(options[name])] for name, system in SYSTEMS.items()]
    click.echo(
        tabulate(table, ["system", "what it remembers", "asks the model", "options"], maxcolwidths=[None, 34, 34, 40])
    )
