"""`localmem bench retrieval`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

import click

from localmem.benchmark.recipes import RetrievalRecipe
from localmem.cli.options import config_option, json_option, note, print_json, settings_of
from localmem.cli.recipes import recipe_options
from localmem.files import write_json

_COLUMNS = {
    "units": "units", "method": "method", "device": "on", "batch": "batch", "build_s": "build s", "rss_mb": "grown MB",
    "memory_mb": "index MB", "p50_ms": "p50 ms", "p95_ms": "p95 ms", "recall": "recall@10", "baseline": "baseline",
    "baseline_p50_ms": "its p50", "ratio": "faster", "scoped_ms": "scoped ms", "add_session_ms": "add 20 ms",
    "search_after_ms": "then ms", "encode_ms": "encode ms",
}  # fmt: skip


@click.command()
@recipe_options(RetrievalRecipe, flags=("units", ("kinds", "kind")))
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder for the report and plots.")
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
        click.echo(_table(report, rows))


def _track(step: str, items: Sequence[object]) -> Iterable[object]:
    from tqdm import tqdm

    return tqdm(items, desc=step, disable=None)


def _table(report: Mapping[str, object], rows: Sequence[Mapping[str, object]]) -> str:
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
