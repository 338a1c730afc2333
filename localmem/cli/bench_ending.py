"""`localmem bench ending`: a session's end with its calls together and one by one. Knows how the figures look."""

from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of

if TYPE_CHECKING:
    from localmem.benchmark.ending import Ending
    from localmem.config import Settings

Runs = dict[str, list["Ending"]]


@click.command()
@click.option("--memories", type=click.IntRange(1), default=6, show_default=True, help="New ones of the session.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Runs of each way, in turns.")
@click.option("--log", type=click.Path(path_type=Path), help="The conversation; default: the demo's.", metavar="FILE")
@config_option
@model_option
@json_option
def ending(
    memories: int, repeats: int, log: Path | None, config: Path | None, model: str | None, as_json: bool
) -> None:
    """What a batch gains: Theanine's session end, its pairs labelled together and one after another.

    Both ways make the same calls to the backbone of the settings, on dialogues that no run has shown it before.
    """
    settings = settings_of(config, model=model)
    runs = _runs(settings, memories, repeats, log)
    report = _report(settings, runs)
    if as_json:
        print_json({**report, "runs": {way: [asdict(run) for run in each] for way, each in runs.items()}})
    else:
        click.echo(_table(runs, report))


def _runs(settings: "Settings", memories: int, repeats: int, log: Path | None) -> Runs:
    import tempfile

    from tqdm import tqdm

    from localmem import build
    from localmem.benchmark.ending import ending
    from localmem.config import system_options
    from localmem.resources import resource
    from localmem.runtime import Runtime
    from localmem.systems.theanine.options import Options
    from localmem.text.logs import Names, read_sessions

    sessions = read_sessions(log or resource("configs/demo/conversation.jsonl"), Names())
    options = Options.of(system_options("theanine", {}))
    runs: Runs = {"one by one": [], "together": []}
    with tempfile.TemporaryDirectory(prefix="localmem-ending-") as place:
        held = settings.model_copy(update={"data": Path(place), "database": None})
        with Runtime(held, progress=note) as runtime:
            llm = runtime.llm.inner
            for run in tqdm(range(2 * repeats + 1), desc="ending sessions", disable=None):
                way = "together" if run % 2 else "one by one"
                measured = ending(
                    llm,
                    lambda: build.retriever(held, runtime.encoder),
                    options,
                    sessions,
                    memories=memories,
                    together=way == "together",
                    run=run,
                )
                if run:  # the first warms up what is made at a first call: grammars, kernels, the instructions' prefix
                    runs[way].append(measured)
    return runs


def _report(settings: "Settings", runs: Runs) -> dict[str, object]:
    from localmem.benchmark.machine import machine, versions

    seconds = {way: median(run.seconds for run in each) for way, each in runs.items()}
    pairs = {way: median(run.seconds - run.summary_seconds for run in each) for way, each in runs.items()}
    together = runs["together"][0]
    return {
        "ratio": round(seconds["together"] / seconds["one by one"], 3),
        "ratio_of_pairs": round(pairs["together"] / pairs["one by one"], 3),
        "cached_share": round(median(run.cached_share for run in runs["together"]), 3),
        "seconds": {way: round(value, 2) for way, value in seconds.items()},
        "seconds_of_pairs": {way: round(value, 2) for way, value in pairs.items()},
        "calls": together.calls,
        "input_tokens": together.input_tokens,
        "model": settings.model,
        "backend": "vllm" if _vllm(settings) else "transformers",
        "machine": machine(Path()),
        "versions": versions(),
    }


def _vllm(settings: "Settings") -> bool:
    from localmem.build import wants_vllm

    return wants_vllm(settings)


def _table(runs: Runs, report: dict[str, object]) -> str:
    from tabulate import tabulate

    rows = [
        [way, run.seconds, run.summary_seconds, run.calls, run.input_tokens, f"{run.cached_share:.0%}", run.links]
        for way, each in runs.items()
        for run in each
    ]
    table = tabulate(rows, ["calls", "seconds", "number", "prompt tokens", "cached", "links"])
    return (
        f"{table}\ntogether takes {report['ratio']} of the time of one by one ({report['model']}, {report['backend']})"
    )
