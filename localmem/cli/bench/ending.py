"""`localmem bench ending`: a session's end with its calls together and one by one. Knows how the figures look."""

from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, cast

import click

from localmem.cli.options import config_option, json_option, model_option, note, print_json, settings_of

if TYPE_CHECKING:
    from localmem.benchmark.ending import Ending
    from localmem.config import Settings

Runs = dict[str, list["Ending"]]
Report = dict[str, object]


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
    """What asking together gains: Theanine's session end, all its pairs at once and one after another.

    All ways make the same calls to the backbone of the settings, on dialogues that no run has shown it before:
    together; one by one, where each call still finds in the prefix cache what the one before it left; and alone, where
    it finds nothing (only vLLM can be told so).
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

    from localmem import factory
    from localmem.benchmark.ending import WAYS, ending
    from localmem.config import system_options
    from localmem.resources import resource
    from localmem.runtime import Runtime
    from localmem.store.conversation_files import Names, read_sessions
    from localmem.systems.theanine.options import Options

    sessions = read_sessions(log or resource("configs/demo/conversation.jsonl"), Names())
    options = Options.of(system_options("theanine", {}))
    ways = list(WAYS) if factory.wants_vllm(settings) else ["together", "one by one"]
    runs: Runs = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="localmem-ending-") as place:
        held = settings.model_copy(update={"data": Path(place), "database": None})
        with Runtime(held, progress=note) as runtime:
            for run in tqdm(range(len(ways) * repeats + 1), desc="ending sessions", disable=None):
                way = ways[run % len(ways)]
                measured = ending(
                    runtime.llm.inner,
                    lambda: factory.retriever(held, runtime.encoder),
                    options,
                    sessions,
                    memories=memories,
                    way=way,
                    run=run,
                )
                if run:  # the first warms up what is made at a first call: grammars, kernels, the instructions' prefix
                    runs[way].append(measured)
    return runs


def _report(settings: "Settings", runs: Runs) -> Report:
    from localmem.factory import wants_vllm
    from localmem.reporting.provenance import machine, versions

    whole = {way: median(run.seconds for run in each) for way, each in runs.items()}
    pairs = {way: median(run.seconds - run.summary_seconds for run in each) for way, each in runs.items()}
    together = runs["together"]
    return {
        "together_of": {way: round(whole["together"] / whole[way], 3) for way in runs},
        "together_of_without_summary": {way: round(pairs["together"] / pairs[way], 3) for way in runs},
        "cached_share": round(median(run.cached_share for run in together), 3),
        "seconds": {way: round(value, 2) for way, value in whole.items()},
        "seconds_without_summary": {way: round(value, 2) for way, value in pairs.items()},
        "calls": together[0].calls,
        "input_tokens": together[0].input_tokens,
        "model": settings.model,
        "backend": "vllm" if wants_vllm(settings) else "transformers",
        "machine": machine(Path()),
        "versions": versions(),
    }


def _table(runs: Runs, report: Report) -> str:
    from tabulate import tabulate

    rows = [
        [way, run.seconds, run.summary_seconds, run.calls, run.input_tokens, f"{run.cached_share:.0%}", run.links]
        for way, each in runs.items()
        for run in each
    ]
    head = ["calls", "seconds", "of them summary", "number", "prompt tokens", "cached", "links"]
    shares = [f"{share} of {way}" for way, share in cast("dict[str, float]", report["together_of"]).items()]
    lines = [
        tabulate(rows, head, floatfmt=".2f"),
        f"together takes {', '.join(shares[1:])} ({report['model']}, {report['backend']})",
        f"{cast('float', report['cached_share']):.0%} of its prompt tokens came from the prefix cache",
    ]
    return "\n".join(lines)
