"""Retrieval: how long indexes take to build and to search, what they hold, and how much of the exact answer they find.

Each index has a process of its own, so that the memory is its own and a GPU can be hidden from it, and stands beside a
baseline that is asked the same question in turn: numpy's brute force, or the bare bm25s. Times are without encoding,
but for those of `with_encoder`. Knows indexes by the Retriever contract, and no store.
"""

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import TYPE_CHECKING, cast

import psutil  # type: ignore[import-untyped]  # it ships no types

from localmem.benchmark.baselines import Brute, bare_bm25s
from localmem.benchmark.corpus import SPARE, Corpus, Rows
from localmem.benchmark.load import percentiles
from localmem.benchmark.sentences import batches
from localmem.retrieval.base import Encoder, Match, Retriever, Scope, Side
from localmem.types import Unit

if TYPE_CHECKING:
    from localmem.retrieval.dense import Kind

Row = dict[str, object]
Search = Callable[[Sequence[str]], object]

K = 10
SESSION = 20  # units of one session
_START = datetime(2026, 1, 1, tzinfo=UTC)
_SECONDS = 8.0  # for each way of searching, in each size of batch
_LEAST = 10  # calls that are measured, however long they take
_WARM_UP = 3
_IN_A_ROW = 10


@dataclass(frozen=True, slots=True)
class Case:
    """One index over the first `units` of the corpus in `folder`: flat, hnsw, ivf, or bm25."""

    folder: Path
    units: int
    method: str
    gpu: bool
    batches: tuple[int, ...]


class Looked:
    """An encoder that looks passages up, and questions too unless another encoder is given for them."""

    def __init__(self, corpus: Corpus, queries: Encoder | None = None) -> None:
        self.identity = "looked-up"
        self.dimension = int(corpus.vectors.shape[1])
        self.seconds = 0.0
        self._passages = {text: number for number, text in enumerate(corpus.texts)}
        self._questions = {text: number for number, text in enumerate(corpus.questions)}
        self._corpus = corpus
        self._queries = queries

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        """Rows of unit length; the seconds that this took are added up."""
        if side == "query" and self._queries is not None:
            return self._queries.encode(texts, side)
        began = perf_counter()
        if side == "passage":
            rows = self._corpus.vectors[[self._passages[text] for text in texts]]
        else:
            rows = self._corpus.asked[[self._questions[text] for text in texts]]
        self.seconds += perf_counter() - began
        return rows


def run(case: Case) -> list[Row]:
    """One row a size of batch. To be called in a process of its own, in which nothing has used a GPU."""
    if not case.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    corpus = Corpus.load(case.folder, case.units)
    return _of_words(case, corpus) if case.method == "bm25" else _of_vectors(case, corpus)


def with_encoder(corpus: Corpus, units: int, encoder: Encoder) -> Iterator[Row]:
    """What a user waits for: the encoder before the search, of vectors alone and of words as well."""
    from localmem.retrieval.bm25 import BM25Retriever
    from localmem.retrieval.dense import DenseRetriever
    from localmem.retrieval.hybrid import HybridRetriever
    from localmem.retrieval.row_index import has_gpu

    dense = DenseRetriever(Looked(corpus, encoder))
    both = HybridRetriever([dense, BM25Retriever()])
    both.add(units_of(corpus.texts[:units]))
    alone = _times({"": lambda asked: encoder.encode(asked, "query")}, corpus.questions, 1)[""]
    for method, retriever in (("encode + dense", dense), ("encode + hybrid", both)):
        times = _times({method: _search(retriever)}, corpus.questions, 1)[method]
        yield {
            "method": method,
            "device": "gpu" if has_gpu() else "cpu",
            "units": units,
            "batch": 1,
            **_figures(times),
            "encode_ms": round(median(alone), 3),
            **_changes(retriever, corpus, units, prefix=method),
        }


def units_of(texts: Sequence[str], start: int = 0, prefix: str = "") -> list[Unit]:
    """Units a minute apart, of two speakers in turn; their ids are their numbers behind the prefix."""
    made = []
    for number, text in enumerate(texts, start):
        name, time = f"{prefix}{number}", _START + timedelta(minutes=number)
        made.append(Unit(name, text, text, "sentence", ("Ann", "Ben")[number % 2], "s", (), time, time))
    return made


# -- one index ---------------------------------------------------------------------------------------------------------


def _of_vectors(case: Case, corpus: Corpus) -> list[Row]:
    from localmem.retrieval.dense import DenseRetriever

    looked, brute = Looked(corpus), Brute(corpus.vectors[: case.units])
    retriever = DenseRetriever(looked, kind=cast("Kind", case.method))
    held = _built(retriever, corpus, case.units, looked)
    held["recall"] = _recall(retriever.search(corpus.questions, K), brute, looked.encode(corpus.questions, "query"))
    return _rows(case, corpus, retriever, held, "numpy", lambda asked: brute.search(looked.encode(asked, "query"), K))


def _of_words(case: Case, corpus: Corpus) -> list[Row]:
    from localmem.retrieval.bm25 import BM25Retriever

    retriever = BM25Retriever()
    held = _built(retriever, corpus, case.units)
    began = perf_counter()
    bare = bare_bm25s(corpus.texts[: case.units], K)
    held["baseline_build_s"] = round(perf_counter() - began, 3)
    return _rows(case, corpus, retriever, held, "bm25s", bare)


def _built(retriever: Retriever, corpus: Corpus, units: int, looked: Looked | None = None) -> Row:
    """Seconds from the bank to the first answer, and what the index then holds: as it says, and as the system sees."""
    bank = units_of(corpus.texts[:units])
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    began = perf_counter()
    retriever.add(bank)
    retriever.search(corpus.questions[:1], K)  # bm25 makes its table of scores when it is first asked
    seconds = perf_counter() - began - (looked.seconds if looked else 0.0)
    gc.collect()
    grown = process.memory_info().rss - before
    return {
        "build_s": round(seconds, 3),
        "rss_mb": round(grown / 2**20, 1),
        "memory_mb": round(retriever.memory / 2**20, 1),
    }


def _rows(case: Case, corpus: Corpus, retriever: Retriever, held: Row, baseline: str, other: Search) -> list[Row]:
    rows = []
    for batch in case.batches:
        times = _times({case.method: _search(retriever), baseline: other}, corpus.questions, batch)
        theirs = _figures(times[baseline])["p50_ms"]
        rows.append(
            {
                "method": case.method,
                "device": "gpu" if case.gpu else "cpu",
                "units": case.units,
                "batch": batch,
                **_figures(times[case.method]),
                "baseline": baseline,
                "baseline_p50_ms": theirs,
                "ratio": float(f"{median(times[baseline]) / median(times[case.method]):.3g}"),
                **held,
            }
        )
    rows[0].update(_changes(retriever, corpus, case.units))
    return rows


def _recall(answers: Sequence[Sequence[Match]], brute: Brute, queries: Rows) -> float:
    """Recall@10: of the exact ten nearest those that are found; one that scores as well as the tenth is as good."""
    shares = []
    for query, matches in zip(queries, answers, strict=True):
        (best,) = brute.search(query[None], K)
        known, bar = {name for name, _ in best}, best[-1][1] - 1e-6
        shares.append(sum(match.id in known or match.score >= bar for match in matches) / len(best))
    return round(fmean(shares), 4)


# -- what else happens to an index -------------------------------------------------------------------------------------


def _changes(retriever: Retriever, corpus: Corpus, units: int, prefix: str = "") -> Row:
    """A session of SESSION units is added, then something is asked; and a search within the bank's last tenth."""
    scope = Scope(since=_START + timedelta(minutes=int(0.9 * units)))
    narrow = _times({"": lambda asked: retriever.search(asked, K, scope)}, corpus.questions, 1)[""]
    spare = units_of(corpus.texts[-SPARE:], start=units, prefix=prefix)
    added, asked = [], []
    for part, question in zip(batches(SPARE, SESSION), corpus.questions, strict=False):
        began = perf_counter()
        retriever.add(spare[part])
        between = perf_counter()
        retriever.search([question], K)
        added.append(1000 * (between - began))
        asked.append(1000 * (perf_counter() - between))
    return {
        "scoped_ms": round(median(narrow), 3),
        "add_session_ms": round(median(added), 3),
        "search_after_ms": round(median(asked), 3),
    }


# -- time --------------------------------------------------------------------------------------------------------------


def _search(retriever: Retriever) -> Callable[[Sequence[str]], list[list[Match]]]:
    return lambda asked: retriever.search(asked, K)


def _times(ways: Mapping[str, Search], questions: Sequence[str], batch: int) -> dict[str, list[float]]:
    """Milliseconds of each call, some calls of each way in turn; as many as there are batches, or as time allows."""
    groups = [list(questions[part]) for part in batches(len(questions), batch)]
    groups = [group for group in groups if len(group) == batch] or [list(questions)]
    for search in ways.values():
        for number in range(_WARM_UP):
            search(groups[number % len(groups)])
    times: dict[str, list[float]] = {name: [] for name in ways}
    began = perf_counter()
    for part in batches(max(len(groups), _LEAST), _IN_A_ROW):
        if part.start >= _LEAST and perf_counter() - began > _SECONDS * len(ways):
            break
        for name, search in ways.items():
            search(groups[part.start % len(groups)])  # the threads of the other way are asleep by then
            times[name] += [_ms(search, groups[number % len(groups)]) for number in range(part.start, part.stop)]
    return times


def _ms(search: Search, asked: Sequence[str]) -> float:
    began = perf_counter()
    search(asked)
    return 1000 * (perf_counter() - began)


def _figures(times: Sequence[float]) -> Row:
    found = percentiles(times)
    return {"p50_ms": found["p50"], "p95_ms": found["p95"], "calls": len(times)}
