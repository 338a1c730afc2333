"""`localmem bench latency`: how long every stage of memory takes. Knows options, folders and how figures look."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, cast

import click

from localmem.cli.bench.latency_report import show_comparison
from localmem.cli.options import config_option, json_option, note, print_json

if TYPE_CHECKING:
    from localmem.benchmark.latency.plan import Plan, Spec
    from localmem.benchmark.latency.result import Point, Result, Sample
    from localmem.config import Settings
    from localmem.llm.base import LLM
    from localmem.types import Session

_STORES = "stores"  # the folder, in that of the run, that the points' stores stand in while they are measured
_SHOWN = {
    "ttft p50": "p50_ttft_ms", "ttft p95": "p95_ttft_ms", "tpot p50": "p50_tpot_ms", "e2el p95": "p95_e2el_ms",
    "req/s": "request_throughput",
}  # fmt: skip


class Listed(click.ParamType[tuple[str, ...]]):
    """Words with commas between them."""

    name = "list"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        words = tuple(word.strip() for word in str(value).split(",") if word.strip())
        if not words:
            self.fail(f"{value!r} names nothing; write it like a,b", param, ctx)
        return words


@click.command()
@click.option("--plan", type=click.Path(path_type=Path), help="A plan, such as configs/bench/cpu.yaml.", metavar="FILE")
@click.option("--systems", type=Listed(), help="Memory systems; all: every one.", metavar="S,S")
@click.option("--model", "models", type=Listed(), help="Backbones, by name in the manifest.", metavar="M,M")
@click.option("--scripted", help="No weights: seconds to an answer's first token and between others.", metavar="F,P")
@click.option("--users", type=click.IntRange(1), help="How many users there are; default: as many as talk at once.")
@click.option("--history", type=Listed(), help="Sessions that each user had held before.", metavar="H,H")
@click.option("--exchanges", type=click.IntRange(1), help="Turns of the user in each of these.")
@click.option("--concurrency", type=Listed(), help="Closed loop: so many talk at any time.", metavar="C,C")
@click.option("--rate", type=Listed(), help="Open loop: so many turns come in a second.", metavar="R,R")
@click.option("--cache", type=Listed(), help="State of the prefix cache: cold, warm, or both.", metavar="C,C")
@click.option("--requests", type=click.IntRange(1), help="Turns that are measured at each point, at least.")
@click.option("--turns", type=click.IntRange(2), help="Turns of a session.")
@click.option("--answer", type=click.IntRange(1), help="Tokens of a reply, at most.")
@click.option("--warm-up", type=click.IntRange(0), help="Turns of each user that are thrown away first.")
@click.option("--goodput", help="What makes a request a good one, in milliseconds.", metavar="ttft:300,e2el:5000")
@click.option("--bare/--no-bare", default=None, help="Send each prompt to the bare backbone too.")
@click.option("--ends", type=click.IntRange(0), help="Sessions of a point that are remembered when over.")
@click.option("--during-ends", is_flag=True, default=None, help="Once more while sessions are being remembered.")
@click.option("--seed", type=int, help="Of texts and arrivals.")
@click.option("--out", type=click.Path(path_type=Path), help="The run's folder.", metavar="DIR")
@click.option("--resume", is_flag=True, help="Go on with the run that --out holds, at the first point it has not.")
@click.option(
    "--compare", "pair", type=click.Path(path_type=Path), nargs=2, help="Set two runs beside each other.", metavar="A B"
)
@config_option
@json_option
def latency(
    plan: Path | None,
    out: Path | None,
    pair: tuple[Path, Path] | None,
    *,
    resume: bool,
    config: Path | None,
    as_json: bool,
    **given: object,
) -> None:
    """Real agents over a real backbone: how long until the first token, with memory and without, and which stage costs
    what.

    Options stand over the plan's. Every request is in DIR/samples.jsonl at once, and a point's figures in
    DIR/result.json when it is measured; a run with several models has a folder for each.
    """
    from localmem.benchmark.latency.plan import Plan

    if pair:
        show_comparison(*pair, as_json=as_json)
        return
    if out is None:
        raise click.UsageError("nothing says where the run goes; give its folder as --out, or two runs to --compare")
    values = _values(given)
    wanted = Plan.load(plan, values) if plan else Plan.of(values)
    models = wanted.models or (None,)
    if wanted.scripted and wanted.models:
        note("a scripted backbone stands in for the plan's models")
        models = (None,)
    folders = {model: out / model if model and len(models) > 1 else out for model in models}
    results = [_run(wanted, config, model, folder, resume=resume) for model, folder in folders.items()]
    if as_json:
        print_json(_plain(results))
    else:
        click.echo("\n\n".join(map(_table, results)))


def _values(given: Mapping[str, object]) -> dict[str, object]:
    """The options that were given, as a plan has them."""
    from localmem.benchmark.latency.plan import goodput_of

    values = {name: value for name, value in given.items() if value is not None}
    if "scripted" in values:
        values["scripted"] = _scripted(str(values["scripted"]))
    if "goodput" in values:
        values["goodput"] = goodput_of(str(values["goodput"]))
    if values.get("systems") == ("all",):
        from localmem.factory import SYSTEMS

        values["systems"] = tuple(SYSTEMS)
    return values


def _scripted(text: str) -> dict[str, object]:
    from localmem.errors import BadInput

    parts = text.split(",")
    if len(parts) != 2:
        raise BadInput(f"--scripted {text!r} is not two numbers; write seconds like 0.05,0.005")
    return dict(zip(("first_token", "per_token"), parts, strict=True))


def _run(plan: "Plan", config: Path | None, model: str | None, out: Path, *, resume: bool) -> "Result":
    """One backbone, all points that DIR has not yet."""
    from localmem.benchmark.latency.run import claim, run
    from localmem.experiments.latency_setup import Worlds, about

    settings = _settings(plan, config, model)
    held = claim(out, about(plan, settings), resume=resume)
    with ExitStack() as stack:
        stores = out / _STORES
        stores.mkdir(exist_ok=True)
        stack.callback(rmtree, stores, ignore_errors=True)
        llm = _backbone(plan, settings, stack)
        worlds = Worlds(plan, settings, llm, stores, _reading)
        bar = stack.enter_context(_Bar(len(plan.specs()), len(held.points)))
        return run(plan, held, worlds.world, out, bar)


def _settings(plan: "Plan", config: Path | None, model: str | None) -> "Settings":
    """Those of --config, with the plan's over them. Raises BadSettings for a system that there is not."""
    from localmem.config import load_settings, system_options

    settings = load_settings(config, {**plan.settings, **({"model": model} if model else {})})
    for system in plan.systems:
        system_options(system, {})
    return settings


def _backbone(plan: "Plan", settings: "Settings", stack: ExitStack) -> "LLM":
    """A scripted one, or the settings', which stops when the run does."""
    if plan.scripted:
        from localmem.benchmark.latency.synthetic_history import scripted

        return scripted(plan.answer, name="scripted", **plan.scripted.model_dump())
    from localmem import factory

    backbone = factory.backbone(settings, note)
    stack.callback(backbone.close)
    return backbone.llm


def _reading(what: str, sessions: "Sequence[Session]") -> "Iterable[Session]":
    from tqdm import tqdm

    return tqdm(sessions, desc=what, unit="session", disable=None, leave=False)


class _Bar:
    """A bar for the requests of a point, on a terminal; in a pipe one line a point."""

    def __init__(self, points: int, done: int) -> None:
        from tqdm import tqdm

        self._points = points
        self._number = done
        self._bar = tqdm(unit="request", disable=None)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def point(self, spec: "Spec", requests: int) -> None:
        self._number += 1
        name = f"{spec.id} ({self._number} of {self._points})"
        self._bar.reset(requests)
        self._bar.set_description(name)
        if self._bar.disable:
            note(name)

    def sample(self, sample: "Sample") -> None:
        if sample.kind != "end":
            self._bar.update()


def _plain(results: "Sequence[Result]") -> object:
    from dataclasses import asdict

    told = [asdict(result) for result in results]
    return told[0] if len(told) == 1 else told


def _table(result: "Result") -> str:
    from tabulate import tabulate

    model, machine = result.about["model"], cast("dict[str, object]", result.about["machine"])
    rows = [_row(point) for point in result.points]
    marked = [f"{point.id}: {mark}" for point in result.points for mark in point.marks]
    where = f"{model} on {machine['processor']}, {machine['usable_cores']} cores"
    return "\n".join([where, tabulate(rows, headers="keys", floatfmt=".1f"), "times in milliseconds", *marked])


def _row(point: "Point") -> dict[str, object]:
    row: dict[str, object] = {"point": point.id, "units": point.units}
    row |= {title: point.turns.figures.get(name, "") for title, name in _SHOWN.items()}
    added = point.overhead
    row["bare ttft p50"] = point.bare.figures.get("p50_ttft_ms", "") if point.bare else ""
    row["added p50"], row["added p95"] = (added.ttft_p50_ms, added.ttft_p95_ms) if added else ("", "")
    row["cached"] = "" if point.cache_hit.all is None else f"{point.cache_hit.all:.0%}"
    return row
