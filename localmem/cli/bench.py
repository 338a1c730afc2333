"""`localmem bench`: benchmarks; `localmem.benchmark` measures."""

import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar, cast

import click

from localmem.benchmark.recipes import LatencyRecipe, LoadRecipe, RetrievalRecipe, ServeRecipe, UsersRecipe
from localmem.cli.options import config_option, json_option, note, print_json, settings_of, system_option
from localmem.cli.recipes import recipe_options
from localmem.errors import BadInput
from localmem.files import write_json

Item = TypeVar("Item")
_folder = click.Path(path_type=Path)


@click.group()
def bench() -> None:
    """Measure latency, load and retrieval."""


@bench.command()
@recipe_options(
    LatencyRecipe, flags=(("systems", "system"), ("models", "model"), ("history", "past-sessions"), "concurrency")
)
@click.option("--out", type=_folder, required=True, metavar="DIR", help="Folder of the run.")
@click.option("--resume", is_flag=True, help="Continue the run in --out.")
@config_option
@json_option
def latency(recipe: LatencyRecipe, out: Path, *, resume: bool, config: Path | None, as_json: bool) -> None:
    """Measure latency stage by stage.

    Runs real agents over a real backbone: time to the first token with and without memory, and the time of each stage.
    Every request is written to DIR/samples.jsonl at once, every finished measurement to DIR/result.json. A run with
    several models has a folder for each.
    """
    from localmem.benchmark.latency.report import headline
    from localmem.experiments.benchmarks import measure_latency

    results = measure_latency(recipe, out, config=config, resume=resume, notify=note, track=_track, progress=_start_bar)
    if as_json:
        documents = [asdict(result) for result in results]
        print_json(documents[0] if len(documents) == 1 else documents)
    else:
        lines = [headline(point) for result in results for point in result.points]
        click.echo("\n".join([*lines, f"All figures: localmem bench report {out}"]))


@bench.command()
@click.argument("folders", type=_folder, nargs=-1, required=True, metavar="DIR…")
@click.option("--out", type=_folder, metavar="DIR", help="Folder of the report (default: the first DIR).")
@click.option("--quality", type=_folder, metavar="DIR", help="Folder of an `eval run` of the same systems.")
@json_option
def report(folders: Sequence[Path], out: Path | None, quality: Path | None, as_json: bool) -> None:
    """Report latency runs as HTML and Markdown.

    Each DIR is the --out of `localmem bench latency`, or a folder of several. The page is self-contained.
    """
    from localmem.benchmark.latency.report import read_chapters, read_scores
    from localmem.experiments.runs import ANSWERS
    from localmem.reporting.sections import write_pages

    target = out or (folders[0] if folders[0].is_dir() else folders[0].parent)
    chapters = read_chapters(folders, target, read_scores(quality / ANSWERS) if quality else {})
    pages = write_pages(target, "localmem latency", chapters)
    if as_json:
        sections = {chapter.title: [asdict(section) for section in chapter.sections] for chapter in chapters}
        print_json([{"run": title, "sections": each} for title, each in sections.items()])
    else:
        for chapter in chapters:
            click.echo("\n  ".join([chapter.title, *chapter.sections[0].notes]))
    note(" and ".join(map(str, pages)))


@bench.command()
@click.argument("first", type=_folder, metavar="A")
@click.argument("second", type=_folder, metavar="B")
@json_option
def compare(first: Path, second: Path, as_json: bool) -> None:
    """Compare two latency runs.

    Prints the ratios of B to A with 95 % intervals. A and B are folders of `localmem bench latency` or their
    result.json; the intervals need the raw samples beside it.
    """
    from localmem.benchmark.latency.tables import compare
    from localmem.reporting.sections import terminal

    comparison = compare(first, second)
    if as_json:
        rows = [{**asdict(row), "verdict": row.verdict} for row in comparison.rows]
        print_json({**asdict(comparison), "rows": rows})
    else:
        click.echo(terminal(comparison.tables()))
        click.echo("\n".join([f"A is {first}, B is {second}", *comparison.notes]))
    if not comparison.rows:
        raise BadInput(
            f"{first} and {second} have no measurement in common; give runs of the same systems, loads and histories"
        )


def _track(title: str, items: Sequence[Item]) -> Iterable[Item]:
    from tqdm import tqdm

    return tqdm(items, desc=title, disable=None)


def _start_bar(title: str, requests: int) -> "Callable[[], object]":
    """A bar on a terminal; one line for each measurement in a pipe."""
    from tqdm import tqdm

    bar = tqdm(total=requests, desc=title, unit="request", disable=None)
    if bar.disable:
        note(title)
    return bar.update


_TIMES = {
    "fsync of the disk": "fsync_ms",
    "turn durable": "acknowledged_ms",
    "turn answered": "turn_ms",
    "beyond the backbone": "beyond_backbone_ms",
}


@bench.command()
@recipe_options(LoadRecipe, flags=("users", "turns"))
@click.option("--turn-times", type=_folder, metavar="FILE", help="JSONL file for each turn's times.")
@click.option("--data-dir", type=_folder, metavar="DIR", help="Data directory (default: temporary).")
@config_option
@system_option
@json_option
def load(
    recipe: LoadRecipe,
    turn_times: Path | None,
    data_dir: Path | None,
    config: Path | None,
    system: str | None,
    as_json: bool,
) -> None:
    """Measure many users at once.

    Reports how long until a turn is durable and until it is answered. The store is real and on disk; the backbone is
    scripted with fixed times. Afterwards every acknowledged turn is looked up in the store; exit status 1 if one is
    missing or a turn failed.
    """
    from localmem.experiments.benchmarks import measure_load

    with tempfile.TemporaryDirectory(prefix="localmem-load-") as folder:
        report = measure_load(recipe, settings_of(config, data_dir or Path(folder), None, system), note, turn_times)
    if as_json:
        print_json(report)
    else:
        click.echo(_load_table(recipe, report))
    if report["failed"] or report["lost"]:
        sys.exit(1)


def _load_table(recipe: LoadRecipe, report: Mapping[str, object]) -> str:
    from tabulate import tabulate

    machine = cast("dict[str, object]", report["machine"])
    figures = [{"milliseconds": name, **cast("dict[str, float]", report[key])} for name, key in _TIMES.items()]
    lines = [
        tabulate(figures, headers="keys", floatfmt=".2f"),
        f"{recipe.users} users, pause {recipe.think} s; failed: {report['failed'] or 0}",
        f"replies of {recipe.answer} words: {recipe.first_token} s to the first, {recipe.per_token} s for each further",
        f"{report['turns']} turns in {report['seconds']} s, {report['turns_per_second']} per second",
        f"{report['acknowledged']} turns acknowledged, {report['lost']} of them missing from the store",
        f"{machine['processor']}, {machine['usable_cores']} cores, load average {machine['load_average']} before",
        f"store on {machine['file_system']}",
    ]
    return "\n".join(lines)


_COLUMNS = {
    "units": "units", "method": "method", "device": "on", "batch": "batch", "build_s": "build s", "rss_mb": "grown MB",
    "memory_mb": "index MB", "p50_ms": "p50 ms", "p95_ms": "p95 ms", "recall": "recall@10", "baseline": "baseline",
    "baseline_p50_ms": "its p50", "ratio": "faster", "scoped_ms": "scoped ms", "add_session_ms": "add 20 ms",
    "search_after_ms": "then ms", "encode_ms": "encode ms",
}  # fmt: skip


@bench.command()
@recipe_options(RetrievalRecipe, flags=("units", ("kinds", "kind")))
@click.option("--out", type=_folder, metavar="DIR", help="Folder for the report and plots.")
@config_option
@json_option
def retrieval(recipe: RetrievalRecipe, out: Path | None, config: Path | None, as_json: bool) -> None:
    """Measure the speed and recall of indexes.

    Builds and searches indexes of growing size over generated statements, encoded with the configured encoder. Each
    index is compared with brute force in numpy, or with bare bm25s; on a GPU too if FAISS sees one. Times exclude
    encoding, except in the rows that say so.
    """
    from localmem.benchmark.indexes import draw_retrieval
    from localmem.experiments.benchmarks import measure_retrieval

    report = measure_retrieval(recipe, settings_of(config), _track)
    rows = cast("list[dict[str, object]]", report["rows"])
    if out:
        write_json(out / "retrieval.json", report, "choose another --out")
        note(" ".join(map(str, draw_retrieval(rows, out))))
    if as_json:
        print_json(report)
    else:
        click.echo(_retrieval_table(report, rows))


def _retrieval_table(report: Mapping[str, object], rows: Sequence[Mapping[str, object]]) -> str:
    from tabulate import tabulate

    vectors, machine = cast("dict[str, int]", report["vectors"]), cast("dict[str, object]", report["machine"])
    cells = [{title: row.get(key, "") for key, title in _COLUMNS.items()} for row in rows]
    lines = [
        tabulate(cells, headers="keys"),
        f"vectors of {report['encoder']}: {vectors['encoded']} encoded, {vectors['mixed']} mixed from two with noise",
        "recall@10 is of exact search; scoped: within the last tenth of the bank; then: the search after adding 20",
        f"{machine['processor']}, {machine['usable_cores']} cores, load average {machine['load_average']} before",
    ]
    return "\n".join(lines)


@bench.command("serve")
@recipe_options(ServeRecipe, flags=("users", "most", "turns", "think"))
@click.option("--export", type=_folder, metavar="FILE", help="JSONL file of all requests in AIPerf's format.")
@config_option
@json_option
def measure_server(recipe: ServeRecipe, export: Path | None, config: Path | None, *, as_json: bool) -> None:
    """Measure a server with streaming clients.

    Starts `localmem serve` on a temporary data directory and lets users talk to it over HTTP, each with a key and a
    dialogue of its own. With --most it searches for the most users whose turns keep the limits, by default 95 % of
    first tokens within 500 ms. Exit status 1 if not even one user was served within them.
    """
    from localmem.experiments.serving import measure_serving

    result = measure_serving(recipe, config=config, export=export, notify=note)
    if as_json:
        print_json(result)
    else:
        limits = " and ".join(f"{name} under {limit:g} ms" for name, limit in recipe.limits.items())
        click.echo(f"This machine serves {result['most_users']} users at {limits} for {recipe.share:.0%} of turns.")
    if not result["most_users"]:
        sys.exit(1)


@bench.command("users")
@recipe_options(UsersRecipe, flags=("users", "units", "sample"))
@click.option("--out", type=_folder, metavar="DIR", help="Folder for the report and plots.")
@click.option("--data-dir", type=_folder, metavar="DIR", help="Data directory (default: temporary).")
@config_option
@system_option
@json_option
def measure_growth(
    recipe: UsersRecipe,
    out: Path | None,
    data_dir: Path | None,
    config: Path | None,
    system: str | None,
    *,
    as_json: bool,
) -> None:
    """Measure how a store grows with its users.

    Fills the store of the settings, which must be empty, and measures at each size how long a user's recall takes whose
    memory is not in this process (cold) and is (warm), a turn without the backbone's time, and disk and memory.
    """
    from localmem.experiments.users import draw_growth, measure_users

    with tempfile.TemporaryDirectory(prefix="localmem-users-") as folder:
        report = measure_users(recipe, settings_of(config, data_dir or Path(folder), None, system), note)
    if out:
        write_json(out / "users.json", report, "choose another --out")
        note(" ".join(map(str, draw_growth(cast("list[dict[str, object]]", report["rows"]), out))))
    if as_json:
        print_json(report)
    else:
        click.echo(_growth_table(report))


def _growth_table(report: Mapping[str, object]) -> str:
    from tabulate import tabulate

    machine = cast("dict[str, object]", report["machine"])
    rows = cast("list[dict[str, object]]", report["rows"])
    names = ("cold_recall_ms", "warm_recall_ms", "turn_ms")
    cells = [
        {key: value for key, value in row.items() if key not in names}
        | {
            f"{name.removesuffix('_ms').replace('_', ' ')} {rank} ms": cast("dict[str, float]", row[name])[rank]
            for name in names
            for rank in ("p50", "p95", "cpu")
        }
        for row in rows
    ]
    lines = [
        tabulate(cells, headers="keys", floatfmt=".1f"),
        f"{report['server']}, system {report['system']}",
        f"{machine['processor']}, {machine['usable_cores']} cores, load average {machine['load_average']} before",
    ]
    return "\n".join(lines)
