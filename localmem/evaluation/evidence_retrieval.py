"""Evidence retrieval: probes are searched for among the units of their episode, and every ranking is measured.

Depends on retrievers and units by their contracts only; the caller chooses them and the data.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from localmem.evaluation.episodes import Dataset, Episode, Probe
from localmem.evaluation.metrics.ranking import (
    CoveredIds,
    dcg,
    hit_at,
    recall_at,
    recall_within,
    reciprocal_rank,
    tokens_at,
)
from localmem.retrieval.base import Retriever
from localmem.text.dialogue import Count, dated_lines
from localmem.types import Session, Unit

Gold = Literal["turns", "sessions"]
Query = Literal["question", "dialogue"]

DEPTHS = (1, 3, 5, 10, 20, 50)  # numbers of units at which recall and hits are measured
BUDGETS = (100, 250, 500, 1000, 2000, 4000)  # numbers of tokens at which recall is measured
DCG_TURNS = 50  # retrieved turns over which DCG is summed (SeCom, Figure 2: a total budget of 50 turns)
_TIMED = 20  # questions of an episode that are searched for one at a time, to measure latency


@dataclass(frozen=True, slots=True)
class RetrievalMethod:
    """A name, a function that makes units from an episode's sessions, and one that makes an empty index for them."""

    name: str
    units: Callable[[Sequence[Session]], list[Unit]]
    retriever: Callable[[], Retriever]


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """What is measured for every method.

    `gold` is the kind of ids to find, `width` the number of units to search for, `count` counts tokens.
    """

    gold: Gold
    query: Query
    width: int
    count: Count


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The measures of one probe with one method. `units` are the ids of the first units, best first."""

    run: str
    episode: str
    probe: str
    type: str
    measures: Mapping[str, float]
    units: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetrievalResult:
    """A method over episodes: a row for each probe, the number of units and their mean size in tokens.

    `milliseconds` are those of single searches, each with the encoding of its question.
    """

    run: str
    rows: tuple[ProbeResult, ...]
    units: int
    unit_tokens: float
    milliseconds: tuple[float, ...]


def measure_retrieval(method: RetrievalMethod, dataset: Dataset, options: MeasureOptions) -> Iterator[RetrievalResult]:
    """The result of each episode in turn, see `merge_results`. Probes without evidence are skipped."""
    for episode in dataset.episodes:
        units = method.units(episode.sessions)
        sizes = options.count([dated_lines([unit]) for unit in units]) if units else []
        index = method.retriever()
        index.add(units)
        probes = probes_with_evidence(episode, options.gold)
        queries = [query_text(probe, options.query) for probe in probes]
        details = {
            unit.id: (unit.sources if options.gold == "turns" else (unit.session,), size)
            for unit, size in zip(units, sizes, strict=True)
        }
        rows: list[ProbeResult] = []
        for probe, matches in zip(probes, index.search(queries, options.width), strict=True):
            ids = tuple(match.id for match in matches)
            measures = _measures([details[key] for key in ids], set(_evidence(probe, options.gold)), options.width)
            best = ids[: max(DEPTHS)]
            rows.append(ProbeResult(method.name, episode.id, probe.id, probe.type, measures, best))
        milliseconds = _search_times(index, queries, options.width)
        yield RetrievalResult(method.name, tuple(rows), len(units), sum(sizes) / max(1, len(units)), milliseconds)


def merge_results(results: Iterable[RetrievalResult]) -> RetrievalResult:
    """The results of all episodes as one."""
    episodes = list(results)
    units = sum(result.units for result in episodes)
    tokens = sum(result.unit_tokens * result.units for result in episodes) / max(1, units)
    rows = tuple(row for result in episodes for row in result.rows)
    milliseconds = tuple(value for result in episodes for value in result.milliseconds)
    return RetrievalResult(episodes[0].run, rows, units, tokens, milliseconds)


def probes_with_evidence(episode: Episode, gold: Gold) -> list[Probe]:
    """The probes of an episode that have something to find."""
    return [probe for probe in episode.probes if _evidence(probe, gold)]


def query_text(probe: Probe, query: Query) -> str:
    """The text to search for: the question, preceded by the dialogue for `query="dialogue"`."""
    dialogue = [turn.text for turn in probe.dialogue] if query == "dialogue" else []
    return "\n".join([*dialogue, probe.question])


def _evidence(probe: Probe, gold: Gold) -> tuple[str, ...]:
    return probe.evidence if gold == "turns" else probe.sessions


def _search_times(index: Retriever, queries: Sequence[str], width: int) -> tuple[float, ...]:
    times: list[float] = []
    for query in queries[:_TIMED]:
        start = time.perf_counter()
        index.search([query], width)
        times.append(1000 * (time.perf_counter() - start))
    return tuple(times)


def _measures(units: Sequence[tuple[CoveredIds, int]], gold: set[str], width: int) -> dict[str, float]:
    """The measures of a ranking of units, each with the ids that it covers and its size in tokens."""
    ranking, sizes = [ids for ids, _ in units], [size for _, size in units]
    depths = [depth for depth in DEPTHS if depth <= width]
    return {
        **{f"recall@{depth}": recall_at(ranking, gold, depth) for depth in depths},
        **{f"hit@{depth}": hit_at(ranking, gold, depth) for depth in depths},
        "mrr": reciprocal_rank(ranking, gold),
        f"dcg@{DCG_TURNS}": dcg(ranking, gold, DCG_TURNS),
        **{f"tokens@{depth}": float(tokens_at(sizes, depth)) for depth in depths},
        **{f"recall@{budget}t": recall_within(ranking, sizes, gold, budget) for budget in BUDGETS},
    }
