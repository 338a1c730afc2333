"""`localmem bench`: benchmarks; `localmem.benchmark` measures."""

import click

from localmem.cli.bench.latency import compare, latency, report
from localmem.cli.bench.load import load
from localmem.cli.bench.retrieval import retrieval


@click.group()
def bench() -> None:
    """Measure latency, load and retrieval."""


for command in (latency, report, compare, retrieval, load):
    bench.add_command(command)
