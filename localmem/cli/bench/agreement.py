"""`localmem bench agreement`: this bench beside vLLM's own, on one server and the same prompts. Knows how it looks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of

if TYPE_CHECKING:
    from localmem.benchmark.latency.agreement import Row, Server, Work
    from localmem.config import Settings
    from localmem.llm.base import LLM

_WARM = 4  # prompts that no figure counts


@click.command()
@click.option("--prompts", type=click.IntRange(2), default=24, show_default=True, help="How many each sends.")
@click.option("--answer", type=click.IntRange(2), default=32, show_default=True, help="Tokens of each answer.")
@click.option("--concurrency", type=click.IntRange(1), default=4, show_default=True, help="How many at any time.")
@click.option("--rounds", type=click.IntRange(1), default=6, show_default=True, help="Runs of each, in turns.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the prompts.")
@config_option
@model_option
@json_option
def agreement(
    prompts: int,
    answer: int,
    concurrency: int,
    rounds: int,
    seed: int,
    config: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Does this bench measure what vLLM's own `bench serve` measures? Both send the same prompts to a server of ours.

    Neither finds a prompt in the prefix cache, and each answer has as many tokens as asked.
    """
    from localmem.benchmark.latency import agreement as both
    from localmem.benchmark.latency.machine_state import Watch, look, marks

    settings, work = settings_of(config, model=model), both.Work.made(prompts, answer, concurrency, seed)
    with _served(settings) as (llm, server):
        both.ours(both.Work.made(_WARM, answer, concurrency, seed + 1), llm)
        before = look()
        with Watch() as watch:
            found = list(_told(both.rounds(work, llm, server, rounds), rounds))
        against = marks(before, watch.seen, look())
    rows = both.rows(found)
    if as_json:
        print_json({**_about(settings, work, seed), "rows": [asdict(row) for row in rows], "marks": against})
    else:
        click.echo("\n".join([_table(rows), *against]))


@contextmanager
def _served(settings: "Settings") -> "Iterator[tuple[LLM, Server]]":
    """A server of the settings' model, and both ways to it."""
    from localmem.benchmark.latency.agreement import Server
    from localmem.llm.vllm.llm import VllmLLM
    from localmem.llm.vllm.vllm_server import VllmServer
    from localmem.weights import model_path

    name, path = settings.model, model_path(settings.model)
    with VllmServer(path, name=name, log=settings.data / "vllm.log", progress=_stages()) as served:
        llm = VllmLLM(served.url, name=name, tokenizer=path, api_key=served.api_key, server=served)
        yield llm, Server(served.url, served.api_key, name, path)
        llm.close()


def _stages() -> "Callable[[str, float], None]":
    """Tells of each stage of the server's start once."""
    told: set[str] = set()

    def stage(name: str, seconds: float) -> None:
        if name not in told:
            told.add(name)
            note(f"vLLM: {name} ({seconds:.0f} s)")

    return stage


def _told(
    found: "Iterator[tuple[Mapping[str, float], Mapping[str, float]]]", rounds: int
) -> "Iterator[tuple[Mapping[str, float], Mapping[str, float]]]":
    for number, (ours, theirs) in enumerate(found, start=1):
        times = f"{ours['mean_ttft_ms']:.0f} and {theirs['mean_ttft_ms']:.0f} ms to the first token"
        note(f"round {number} of {rounds}: ours and theirs {times}")
        yield ours, theirs


def _about(settings: "Settings", work: "Work", seed: int) -> dict[str, object]:
    from localmem.reporting.provenance import machine, versions

    given = {"prompts": len(work.prompts), "answer": work.answer, "concurrency": work.concurrency, "seed": seed}
    return {"model": settings.model, **given, "machine": machine(settings.data), "versions": versions()}


def _table(rows: "Sequence[Row]") -> str:
    from tabulate import tabulate

    shown = [
        {
            "figure": row.figure,
            "localmem": row.ours,
            "vllm bench serve": row.theirs,
            "ratio": f"{row.ratio:.3f}",
            "of single rounds": f"{row.least:.3f} to {row.greatest:.3f}",
        }
        for row in rows
    ]
    return tabulate(shown, headers="keys", floatfmt=".2f", disable_numparse=[3, 4])
