"""`localmem bench retrieval`: indexes side by side with brute force and bare bm25s. Knows how the figures look."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from localmem.cli.options import Sizes, config_option, json_option, note, print_json, settings_of

if TYPE_CHECKING:
    from localmem.benchmark.corpus import Corpus
    from localmem.benchmark.indexes import Case, Row
    from localmem.config import Settings
    from localmem.retrieval.base import Encoder

_KINDS = ("flat", "hnsw", "ivf")
_COPIES = 5  # of all vectors, at most: here, in the index's process, in its index, while it is made
_SHOWN = {
    "units": "units", "method": "method", "device": "on", "batch": "batch", "build_s": "build s", "rss_mb": "grown MB",
    "memory_mb": "index MB", "p50_ms": "p50 ms", "p95_ms": "p95 ms", "recall": "recall@10", "baseline": "beside",
    "baseline_p50_ms": "its p50", "ratio": "faster", "scoped_ms": "scoped ms", "add_session_ms": "add 20 ms",
    "search_after_ms": "then ms", "encode_ms": "encode ms",
}  # fmt: skip


@click.command()
@click.option("--units", type=Sizes(), default="1e3,1e4,1e5", show_default=True, help="Units of each bank.")
@click.option("--kinds", default=",".join(_KINDS), show_default=True, help="Indexes of vectors; bm25 is always there.")
@click.option("--dimension", type=click.IntRange(2), help="Vectors of words in so many numbers; no encoder is needed.")
@click.option("--encode-all", is_flag=True, help="Encode every text; default: 10,000, and mixtures of these.")
@click.option("--queries", type=click.IntRange(10), default=200, show_default=True, help="Questions that are asked.")
@click.option("--batch", type=Sizes(), default="1,32", show_default=True, help="Questions in one call.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of texts, questions and mixtures.")
@click.option("--out", type=click.Path(path_type=Path), help="Write report and pictures here.", metavar="DIR")
@config_option
@json_option
def retrieval(
    units: tuple[int, ...],
    kinds: str,
    dimension: int | None,
    encode_all: bool,
    queries: int,
    batch: tuple[int, ...],
    seed: int,
    out: Path | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Build and search indexes of growing size: time, memory, and recall of the exact ten nearest.

    Statements are made up from the seed and encoded with the settings' encoder. Each index stands beside numpy's brute
    force or the bare bm25s, asked in turn on the same machine; on a GPU too where FAISS sees one. Times are without
    encoding, but for the rows that say so.
    """
    from localmem.reporting.provenance import machine

    chosen = _chosen(kinds)
    settings = settings_of(config)
    before = machine(settings.data)
    encoder = _encoder(settings, dimension)
    made = {"units": units, "queries": queries, "seed": seed, "encode_all": encode_all or dimension is not None}
    corpus = _corpus(encoder, **made)  # type: ignore[arg-type]  # as they are named
    with tempfile.TemporaryDirectory(prefix="localmem-retrieval-") as folder:
        corpus.save(Path(folder))
        rows = list(_measured(Path(folder), corpus, units, chosen, batch, None if dimension else encoder))
    plan = {**made, "kinds": chosen, "batch": batch}
    report = {**_report(encoder, corpus), "machine": before, "plan": plan, "rows": rows}
    if out:
        _write(report, rows, out)
    if as_json:
        print_json(report)
    else:
        click.echo(_table(report, rows))


def _chosen(kinds: str) -> tuple[str, ...]:
    chosen = tuple(kinds.split(","))
    unknown = sorted(set(chosen) - set(_KINDS))
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is no index; give some of {','.join(_KINDS)}", param_hint="--kinds")
    return chosen


def _encoder(settings: "Settings", dimension: int | None) -> "Encoder":
    """The settings' encoder without a cache, or vectors of words."""
    from localmem import factory
    from localmem.benchmark.corpus import WordVectors
    from localmem.retrieval.encoder import CachedEncoder

    if dimension is not None:
        return WordVectors(dimension)
    return cast(CachedEncoder, factory.encoder(settings, _NoCache())).inner


class _NoCache:
    def get(self, identity: str, digests: Sequence[str]) -> dict[str, bytes]:
        return {}

    def put(self, identity: str, rows: Mapping[str, bytes]) -> None:
        """Nothing is kept."""


def _corpus(encoder: "Encoder", *, units: tuple[int, ...], queries: int, seed: int, encode_all: bool) -> "Corpus":
    import psutil  # type: ignore[import-untyped]  # it ships no types
    from tqdm import tqdm

    from localmem.benchmark.corpus import corpus
    from localmem.errors import BadInput

    needed = max(units) * encoder.dimension * 4 * _COPIES / 2**30
    free = psutil.virtual_memory().available / 2**30
    if needed > free:
        raise BadInput(f"{max(units)} units need about {needed:.0f} GiB and {free:.0f} are free; give fewer --units")
    note(f"making {max(units)} statements")
    return corpus(
        encoder,
        max(units),
        queries,
        seed,
        encode_all=encode_all,
        track=lambda parts: tqdm(parts, desc="encoding", unit="batch", disable=None),
    )


def _measured(
    folder: Path,
    corpus: "Corpus",
    units: Sequence[int],
    kinds: Sequence[str],
    batch: tuple[int, ...],
    encoder: "Encoder | None",
) -> "Iterator[Row]":
    """Each case in a fresh process; what needs the encoder here, where it is loaded."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from tqdm import tqdm

    from localmem.benchmark.indexes import run, with_encoder

    cases = list(_cases(folder, units, kinds, batch))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for rows in tqdm(pool.map(run, cases), desc="measuring", unit="index", total=len(cases), disable=None):
            yield from rows
    for size in units if encoder else ():
        yield from with_encoder(corpus, size, cast("Encoder", encoder))


def _cases(folder: Path, units: Sequence[int], kinds: Sequence[str], batch: tuple[int, ...]) -> "Iterator[Case]":
    from localmem.benchmark.indexes import Case
    from localmem.retrieval.row_index import has_gpu

    on_gpu = [kind for kind in kinds if kind != "hnsw"] if has_gpu() else []
    for size in units:
        yield from (Case(folder, size, method, gpu=False, batches=batch) for method in (*kinds, "bm25"))
        yield from (Case(folder, size, method, gpu=True, batches=batch) for method in on_gpu)


def _report(encoder: "Encoder", corpus: "Corpus") -> dict[str, object]:
    from localmem.reporting.provenance import versions

    return {
        "encoder": encoder.identity,
        "dimension": encoder.dimension,
        "vectors": {"encoded": corpus.encoded, "mixed": len(corpus.texts) - corpus.encoded},
        "versions": versions(),
    }


def _write(report: Mapping[str, object], rows: "Sequence[Row]", folder: Path) -> None:
    from localmem.benchmark.curves import draw
    from localmem.files import write_json

    write_json(folder / "retrieval.json", report, "choose another --out")
    for path in draw(rows, folder):
        note(f"wrote {path}")


def _table(report: Mapping[str, object], rows: "Sequence[Row]") -> str:
    from tabulate import tabulate

    vectors, machine = cast("dict[str, int]", report["vectors"]), cast("dict[str, object]", report["machine"])
    shown = [{title: row.get(key, "") for key, title in _SHOWN.items()} for row in rows]
    lines = [
        tabulate(shown, headers="keys"),
        f"vectors of {report['encoder']}: {vectors['encoded']} encoded, {vectors['mixed']} mixed from two with noise",
        "recall@10 is against exact search; scoped: within the bank's last tenth; then: the search after an addition",
        f"{machine['processor']}, {machine['usable_cores']} cores, load average {machine['load_average']} before",
    ]
    return "\n".join(lines)
