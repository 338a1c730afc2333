"""Retrieval benchmark: time to build and search indexes, their memory, and their recall of exact search.

Each index runs in its own process, so that its memory can be measured and a GPU hidden from it, and is compared with a
baseline that answers the same questions in turn: brute force in numpy, or bare bm25s. Times exclude encoding unless a
row says otherwise.
"""

import gc
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import psutil
from numpy.typing import NDArray

from localmem.benchmark.corpus import SPARE, Corpus, Rows, Track, batches, make_corpus
from localmem.benchmark.load import percentiles
from localmem.benchmark.recipes import RetrievalRecipe
from localmem.errors import BadInput
from localmem.reporting.sections import save_plot
from localmem.retrieval.base import Encoder, Match, Retriever, Scope, Side
from localmem.types import Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, object]
Search = Callable[[Sequence[str]], object]

K = 10
SESSION_UNITS = 20
_START = datetime(2026, 1, 1, tzinfo=UTC)
_COPIES = 5  # of all vectors at most: in this process, in the index's, in its index, and while that is built
_SECONDS = 8.0  # for each search method and batch size
_MIN_CALLS = 10  # however long they take
_WARM_UP_CALLS = 3
_CONSECUTIVE_CALLS = 10  # of one method before the other has its turn


@dataclass(frozen=True, slots=True)
class IndexCase:
    """One index over the first `units` of the corpus in `folder`; the method is an IndexKind or `bm25`."""

    folder: Path
    units: int
    method: str
    gpu: bool
    batches: tuple[int, ...]


def run_retrieval(
    recipe: RetrievalRecipe, encoder: Encoder, track: Callable[[str, Sequence[object]], Iterable[object]]
) -> dict[str, object]:
    """The report: a row for each index, bank size and batch size. `track` wraps titled steps, for progress bars.

    Raises BadInput before any work if the vectors would not fit into memory.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    largest = max(recipe.units)
    needed = largest * encoder.dimension * 4 * _COPIES / 2**30
    free = psutil.virtual_memory().available / 2**30
    if needed > free:
        raise BadInput(f"{largest} units need about {needed:.0f} GiB, {free:.0f} are free; choose fewer --units")
    encode_all = recipe.encode_all or recipe.dimension is not None
    track_encoding: Track = lambda parts: track("encoding", parts)  # type: ignore[assignment,return-value]  # noqa: E731
    corpus = make_corpus(encoder, largest, recipe.queries, recipe.seed, encode_all=encode_all, track=track_encoding)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="localmem-retrieval-") as folder:
        corpus.save(Path(folder))
        cases = list(_cases(Path(folder), recipe))
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
            for _, case_rows in zip(track("measuring", cases), pool.map(run_case, cases), strict=True):
                rows += case_rows
    for units in recipe.units if recipe.dimension is None else ():
        rows += run_with_encoder(corpus, units, encoder)
    return {
        "encoder": encoder.identity,
        "dimension": encoder.dimension,
        "vectors": {"encoded": corpus.encoded, "mixed": len(corpus.texts) - corpus.encoded},
        "recipe": recipe.model_dump(mode="json"),
        "rows": rows,
    }


def _cases(folder: Path, recipe: RetrievalRecipe) -> Iterator[IndexCase]:
    from localmem.retrieval.gpu_device import gpu_count

    on_gpu = [kind for kind in recipe.kinds if kind != "hnsw"] if gpu_count() else []
    for units in recipe.units:
        yield from (IndexCase(folder, units, kind, False, recipe.batch) for kind in (*recipe.kinds, "bm25"))  # noqa: FBT003
        yield from (IndexCase(folder, units, kind, True, recipe.batch) for kind in on_gpu)  # noqa: FBT003


def run_case(case: IndexCase) -> list[Row]:
    """One row for each batch size. To be called in a process of its own, in which nothing has used a GPU."""
    if not case.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    corpus = Corpus.load(case.folder, case.units)
    return _measure_bm25(case, corpus) if case.method == "bm25" else _measure_vectors(case, corpus)


def run_with_encoder(corpus: Corpus, units: int, encoder: Encoder) -> Iterator[Row]:
    """What a user waits for: encoding the question, then the search of vectors alone and of vectors and words."""
    from localmem.retrieval.bm25 import BM25Retriever
    from localmem.retrieval.dense import DenseRetriever
    from localmem.retrieval.gpu_device import gpu_count
    from localmem.retrieval.hybrid import HybridRetriever

    dense = DenseRetriever(LookupEncoder(corpus, encoder))
    hybrid = HybridRetriever([dense, BM25Retriever()])
    hybrid.add(make_units(corpus.texts[:units]))
    encoding = _times({"": lambda questions: encoder.encode(questions, "query")}, corpus.questions, 1)[""]
    for method, retriever in (("encode + dense", dense), ("encode + hybrid", hybrid)):
        times = _times({method: _search(retriever)}, corpus.questions, 1)[method]
        yield {
            "method": method,
            "device": "gpu" if gpu_count() else "cpu",
            "units": units,
            "batch": 1,
            **_figures(times),
            "encode_ms": round(median(encoding), 3),
            **_measure_changes(retriever, corpus, units, prefix=method),
        }


class LookupEncoder:
    """An encoder that looks up passages, and questions too unless `queries` encodes them. Adds up its `seconds`."""

    def __init__(self, corpus: Corpus, queries: Encoder | None = None) -> None:
        self.identity = "lookup"
        self.dimension = int(corpus.vectors.shape[1])
        self.seconds = 0.0
        self._passages = {text: number for number, text in enumerate(corpus.texts)}
        self._questions = {text: number for number, text in enumerate(corpus.questions)}
        self._corpus = corpus
        self._queries = queries

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        if side == "query" and self._queries is not None:
            return self._queries.encode(texts, side)
        start = perf_counter()
        if side == "passage":
            rows = self._corpus.vectors[[self._passages[text] for text in texts]]
        else:
            rows = self._corpus.question_vectors[[self._questions[text] for text in texts]]
        self.seconds += perf_counter() - start
        return rows


def make_units(texts: Sequence[str], start: int = 0, prefix: str = "") -> list[Unit]:
    """Units a minute apart, of two speakers in turn; an id is the prefix and a number."""
    units = []
    for number, text in enumerate(texts, start):
        name, time = f"{prefix}{number}", _START + timedelta(minutes=number)
        units.append(Unit(name, text, text, "sentence", ("Ann", "Ben")[number % 2], "s", (), time, time))
    return units


class BruteForce:
    """All inner products in single precision, the best of them sorted. Ids are the rows' numbers."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def search(self, queries: Rows, k: int) -> list[list[tuple[str, float]]]:
        scores = queries @ self._rows.T
        k = min(k, scores.shape[1])
        best: NDArray[np.intp] = np.argpartition(scores, scores.shape[1] - k, axis=1)[:, -k:]
        order = np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1), axis=1)
        return [[(str(at), float(row[at])) for at in hits] for row, hits in zip(scores, order, strict=True)]


def bare_bm25s(texts: Sequence[str], k: int) -> Search:
    """The search of a bm25s index with its tokeniser and the stemmer it recommends, as in its documentation."""
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    tokens = bm25s.tokenize(list(texts), stopwords="en", stemmer=stemmer, show_progress=False)
    index = bm25s.BM25()
    index.index(tokens, show_progress=False)

    def search(questions: Sequence[str]) -> object:
        words = bm25s.tokenize(list(questions), stopwords="en", stemmer=stemmer, show_progress=False)
        return index.retrieve(words, k=min(k, len(texts)), show_progress=False)

    return search


def _measure_vectors(case: IndexCase, corpus: Corpus) -> list[Row]:
    from localmem.retrieval.dense import DenseRetriever

    encoder, brute = LookupEncoder(corpus), BruteForce(corpus.vectors[: case.units])
    retriever = DenseRetriever(encoder, kind=case.method)  # type: ignore[arg-type]  # an IndexKind
    figures = _measure_build(retriever, corpus, case.units, encoder)
    vectors = encoder.encode(corpus.questions, "query")
    figures["recall"] = _recall(retriever.search(corpus.questions, K), brute, vectors)
    search: Search = lambda questions: brute.search(encoder.encode(questions, "query"), K)  # noqa: E731
    return _rows(case, corpus, retriever, figures, "numpy", search)


def _measure_bm25(case: IndexCase, corpus: Corpus) -> list[Row]:
    from localmem.retrieval.bm25 import BM25Retriever

    retriever = BM25Retriever()
    figures = _measure_build(retriever, corpus, case.units)
    start = perf_counter()
    baseline = bare_bm25s(corpus.texts[: case.units], K)
    figures["baseline_build_s"] = round(perf_counter() - start, 3)
    return _rows(case, corpus, retriever, figures, "bm25s", baseline)


def _measure_build(retriever: Retriever, corpus: Corpus, units: int, encoder: LookupEncoder | None = None) -> Row:
    """Seconds from the bank to the first answer, and memory: as the index reports it and as the process grew."""
    bank = make_units(corpus.texts[:units])
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    start = perf_counter()
    retriever.add(bank)
    retriever.search(corpus.questions[:1], K)  # bm25 builds its postings at the first search
    seconds = perf_counter() - start - (encoder.seconds if encoder else 0.0)
    gc.collect()
    return {
        "build_s": round(seconds, 3),
        "rss_mb": round((process.memory_info().rss - before) / 2**20, 1),
        "memory_mb": round(retriever.memory / 2**20, 1),
    }


def _rows(
    case: IndexCase, corpus: Corpus, retriever: Retriever, figures: Row, baseline: str, baseline_search: Search
) -> list[Row]:
    rows = []
    for batch in case.batches:
        times = _times({case.method: _search(retriever), baseline: baseline_search}, corpus.questions, batch)
        rows.append(
            {
                "method": case.method,
                "device": "gpu" if case.gpu else "cpu",
                "units": case.units,
                "batch": batch,
                **_figures(times[case.method]),
                "baseline": baseline,
                "baseline_p50_ms": _figures(times[baseline])["p50_ms"],
                "ratio": float(f"{median(times[baseline]) / median(times[case.method]):.3g}"),
                **figures,
            }
        )
    rows[0].update(_measure_changes(retriever, corpus, case.units))
    return rows


def _recall(answers: Sequence[Sequence[Match]], brute: BruteForce, queries: Rows) -> float:
    """Share of the exact ten nearest that are found; a match that scores as well as the tenth counts too."""
    shares = []
    for query, matches in zip(queries, answers, strict=True):
        (exact,) = brute.search(query[None], K)
        ids, tenth = {name for name, _ in exact}, exact[-1][1] - 1e-6
        shares.append(sum(match.id in ids or match.score >= tenth for match in matches) / len(exact))
    return round(fmean(shares), 4)


def _measure_changes(retriever: Retriever, corpus: Corpus, units: int, prefix: str = "") -> Row:
    """A search within the bank's last tenth; adding a session of SESSION_UNITS, and the search right after it."""
    scope = Scope(since=_START + timedelta(minutes=int(0.9 * units)))
    scoped = _times({"": lambda questions: retriever.search(questions, K, scope)}, corpus.questions, 1)[""]
    spare = make_units(corpus.texts[-SPARE:], start=units, prefix=prefix)
    add_ms, search_ms = [], []
    for part, question in zip(batches(SPARE, SESSION_UNITS), corpus.questions, strict=False):
        start = perf_counter()
        retriever.add(spare[part])
        added = perf_counter()
        retriever.search([question], K)
        add_ms.append(1000 * (added - start))
        search_ms.append(1000 * (perf_counter() - added))
    return {
        "scoped_ms": round(median(scoped), 3),
        "add_session_ms": round(median(add_ms), 3),
        "search_after_ms": round(median(search_ms), 3),
    }


def _search(retriever: Retriever) -> Callable[[Sequence[str]], list[list[Match]]]:
    return lambda questions: retriever.search(questions, K)


def _times(methods: Mapping[str, Search], questions: Sequence[str], batch: int) -> dict[str, list[float]]:
    """Milliseconds of each call; the methods take turns. As many calls as there are batches, or as time allows."""
    groups = [list(questions[part]) for part in batches(len(questions), batch)]
    groups = [group for group in groups if len(group) == batch] or [list(questions)]
    for search in methods.values():
        for number in range(_WARM_UP_CALLS):
            search(groups[number % len(groups)])
    times: dict[str, list[float]] = {name: [] for name in methods}
    start = perf_counter()
    for part in batches(max(len(groups), _MIN_CALLS), _CONSECUTIVE_CALLS):
        if part.start >= _MIN_CALLS and perf_counter() - start > _SECONDS * len(methods):
            break
        for name, search in methods.items():
            search(groups[part.start % len(groups)])  # by its end the other method's threads are asleep
            times[name] += [_time_ms(search, groups[number % len(groups)]) for number in range(part.start, part.stop)]
    return times


def _time_ms(search: Search, questions: Sequence[str]) -> float:
    start = perf_counter()
    search(questions)
    return 1000 * (perf_counter() - start)


def _figures(times: Sequence[float]) -> Row:
    figures = percentiles(times)
    return {"p50_ms": figures["p50"], "p95_ms": figures["p95"], "calls": len(times)}


def draw_retrieval(rows: Sequence[Mapping[str, object]], folder: Path) -> list[Path]:
    """Write latency.png (latency by bank size) and recall.png (recall by latency). Raises MissingExtra."""
    smallest = min(_number(row, "batch") for row in rows)
    latency: defaultdict[str, dict[float, float]] = defaultdict(dict)
    recall: defaultdict[str, dict[float, float]] = defaultdict(dict)
    for row in rows:
        if _number(row, "batch") not in (1, smallest):
            continue
        name = f"{row['method']} ({row['device']})"
        latency[name][_number(row, "units")] = _number(row, "p50_ms")
        if "baseline" in row:
            latency[f"{row['baseline']} (bare)"].setdefault(_number(row, "units"), _number(row, "baseline_p50_ms"))
        if "recall" in row:
            recall[name][_number(row, "p50_ms")] = _number(row, "recall")

    def draw(axes: "Axes", lines: Mapping[str, Mapping[float, float]], **settings: str) -> None:
        for name, line in lines.items():
            style = "--" if name.endswith("(bare)") else "-"
            axes.plot(list(line), list(line.values()), style, marker="o", label=name)
        axes.set(xscale="log", **settings)

    time, recalled = "median of one query, ms", "recall@10 of exact search"
    plots = {
        folder / "latency.png": partial(draw, lines=latency, yscale="log", xlabel="units in the bank", ylabel=time),
        folder / "recall.png": partial(draw, lines=recall, xlabel=time, ylabel=recalled),
    }
    for path, plot in plots.items():
        save_plot(path, plot)
    return list(plots)


def _number(row: Mapping[str, object], key: str) -> float:
    return float(str(row[key]))
