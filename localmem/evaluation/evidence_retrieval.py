"""Is what answers a question found? Probes are searched for among the units of their episode, and each is measured.

Knows retrievers and units by their contracts; which ones, and over what data, the caller says.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from localmem.evaluation.episodes import Data, Episode, Probe
from localmem.evaluation.metrics.ranking import (
    Covered,
    dcg,
    hit_at,
    recall_at,
    recall_within,
    reciprocal_rank,
    tokens_at,
)
from localmem.retrieval.base import Match, Retriever
from localmem.text.dialogue import Count, dated
from localmem.types import Session, Unit

Gold = Literal["turns", "sessions"]
Query = Literal["question", "dialogue"]

DEPTHS = (1, 3, 5, 10, 20, 50)  # units at which recall and hits are measured
BUDGETS = (100, 250, 500, 1000, 2000, 4000)  # tokens at which recall is measured
TURNS = 50  # retrieved turns over which DCG is summed (SeCom, Figure 2: a total budget of 50 turns)
TIMED = 20  # questions of an episode that are searched for one at a time, for the time that takes


@dataclass(frozen=True, slots=True)
class Run:
    """One way of retrieving: a name, how units are made of an episode's sessions, and an empty index for them."""

    name: str
    units: Callable[[Sequence[Session]], list[Unit]]
    retriever: Callable[[], Retriever]


@dataclass(frozen=True, slots=True)
class Measuring:
    """What is measured alike for all runs.

    `gold` are the ids that have to be found, `width` is how many units are searched for, `count` counts tokens.
    """

    gold: Gold
    query: Query
    width: int
    count: Count


@dataclass(frozen=True, slots=True)
class Row:
    """The measures of one probe in one run. `found` are the ids of the first units, best first."""

    run: str
    episode: str
    probe: str
    type: str
    measures: Mapping[str, float]
    found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A run over episodes: a row a probe, the number of units and their mean size in tokens as they are shown.

    `milliseconds` are those of single searches, each with the encoding of its question.
    """

    run: str
    rows: tuple[Row, ...]
    units: int
    unit_tokens: float
    milliseconds: tuple[float, ...]


def measure(run: Run, data: Data, how: Measuring) -> Iterator[Result]:
    """The result of each episode in turn; `joined` puts them together. Probes without evidence are passed over."""
    for episode in data.episodes:
        units = run.units(episode.sessions)
        sizes = how.count([dated([unit]) for unit in units]) if units else []
        index = run.retriever()
        index.add(units)
        probes = asked(episode, how.gold)
        texts = [asking(probe, how.query) for probe in probes]
        known = {unit.id: (_covers(unit, how.gold), size) for unit, size in zip(units, sizes, strict=True)}
        found = index.search(texts, how.width)
        rows = tuple(
            _row(run, episode, probe, matches, known, how) for probe, matches in zip(probes, found, strict=True)
        )
        yield Result(run.name, rows, len(units), sum(sizes) / max(1, len(units)), _timed(index, texts, how.width))


def joined(results: Iterable[Result]) -> Result:
    """The results of all episodes as one."""
    held = list(results)
    units = sum(result.units for result in held)
    tokens = sum(result.unit_tokens * result.units for result in held) / max(1, units)
    rows = tuple(row for result in held for row in result.rows)
    return Result(held[0].run, rows, units, tokens, tuple(one for result in held for one in result.milliseconds))


def asked(episode: Episode, gold: Gold) -> list[Probe]:
    """The probes of an episode that have something to find."""
    return [probe for probe in episode.probes if _gold(probe, gold)]


def asking(probe: Probe, query: Query) -> str:
    """The text that is searched for: the question, or the dialogue before it and the question."""
    before = [turn.text for turn in probe.dialogue] if query == "dialogue" else []
    return "\n".join([*before, probe.question])


def _gold(probe: Probe, gold: Gold) -> tuple[str, ...]:
    return probe.evidence if gold == "turns" else probe.sessions


def _covers(unit: Unit, gold: Gold) -> Covered:
    return unit.sources if gold == "turns" else (unit.session,)


def _row(
    run: Run,
    episode: Episode,
    probe: Probe,
    matches: Sequence[Match],
    known: Mapping[str, tuple[Covered, int]],
    how: Measuring,
) -> Row:
    ranking = [known[match.id][0] for match in matches]
    sizes = [known[match.id][1] for match in matches]
    measures = _measures(ranking, sizes, set(_gold(probe, how.gold)), how.width)
    found = tuple(match.id for match in matches[: max(DEPTHS)])
    return Row(run.name, episode.id, probe.id, probe.type, measures, found)


def _timed(index: Retriever, texts: Sequence[str], width: int) -> tuple[float, ...]:
    """Milliseconds of single searches, each with the encoding of its text."""
    spent: list[float] = []
    for text in texts[:TIMED]:
        start = time.perf_counter()
        index.search([text], width)
        spent.append(1000 * (time.perf_counter() - start))
    return tuple(spent)


def _measures(ranking: Sequence[Covered], sizes: Sequence[int], gold: set[str], width: int) -> dict[str, float]:
    depths = [k for k in DEPTHS if k <= width]
    return {
        **{f"recall@{k}": recall_at(ranking, gold, k) for k in depths},
        **{f"hit@{k}": hit_at(ranking, gold, k) for k in depths},
        "mrr": reciprocal_rank(ranking, gold),
        f"dcg@{TURNS}": dcg(ranking, gold, TURNS),
        **{f"tokens@{k}": float(tokens_at(sizes, k)) for k in depths},
        **{f"recall@{budget}t": recall_within(ranking, sizes, gold, budget) for budget in BUDGETS},
    }
