"""`localmem bench runner`: what the evaluation's runner costs. Knows how the figures look on a terminal."""

from dataclasses import asdict

import click

from localmem.cli.options import json_option, print_json


@click.command()
@click.option("--threads", type=click.IntRange(2), default=32, show_default=True, help="Beside one thread.")
@click.option("--episodes", type=click.IntRange(1), default=2, show_default=True, help="For each thread.")
@click.option(
    "--call-ms", type=click.FloatRange(0, min_open=True), default=50.0, show_default=True, help="The LLM's pace."
)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="The median counts.")
@json_option
def runner(threads: int, episodes: int, call_ms: float, rounds: int, as_json: bool) -> None:
    """Run an evaluation over a scripted LLM, with one thread and with many: overhead and throughput.

    The overhead is what the same work takes less without the runner, as a share of the run.
    """
    from localmem.benchmark.evaluating import pace
    from localmem.reporting.provenance import versions

    one = pace(1, episodes * 2, call_ms / 1000)
    many = pace(threads, episodes, call_ms / 1000, rounds)
    gain = (many.calls / many.seconds) / (one.calls / one.seconds)
    rows = [{**asdict(each), "overhead": each.overhead, "not_waiting": each.not_waiting} for each in (one, many)]
    if as_json:
        print_json({"call_ms": call_ms, "runs": rows, "throughput_ratio": gain, "versions": versions()})
        return
    from tabulate import tabulate

    click.echo(tabulate(rows, headers="keys", floatfmt=".3f"))
    click.echo(f"{threads} threads answer {gain:.1f} times as much as one")
