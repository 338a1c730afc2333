"""`localmem bench timelines`: how long drawing a timeline takes. Knows how the figures look on a terminal."""

from collections.abc import Sequence

import click

from localmem.cli.options import Sizes, json_option, print_json


@click.command()
@click.option("--units", type=Sizes(), default="1e3,1e4,1e5", show_default=True, help="Sizes of the component.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random shape and of the draws.")
@json_option
def timelines(units: Sequence[int], seed: int, as_json: bool) -> None:
    """Time the drawing of Theanine's timelines from components of growing size."""
    from tabulate import tabulate

    from localmem.benchmark.timelines import measure

    rows = measure(units, seed)
    if as_json:
        print_json(rows)
    else:
        click.echo(tabulate(rows, headers="keys"))
