"""Evidence retrieval: probes are searched for among the units of their episode, and every ranking is measured.

Units have a chosen size and keys of a chosen form; their texts are those that memory systems show. A ranking is a list
of units, best first; each is the tuple of ids that it covers (the turns of a segment, or the session that a sentence is
about). `gold` are the ids that contain the answer, at least one. Depends on retrievers, segmenters and compressors by
their contracts only; the caller chooses them and the data.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, groupby
from math import log2
from typing import Literal

from localmem.errors import BadInput
from localmem.evaluation.episodes import Dataset, Episode, Probe
from localmem.files import JsonlLog
from localmem.retrieval.base import Retriever
from localmem.segmentation import Segmenter
from localmem.text.compress import Compressor
from localmem.text.dialogue import (
    Count,
    dated_lines,
    day,
    exchange_units,
    line,
    session_units,
    statement_units,
    transcript,
    transcript_unit,
    utterance_units,
)
from localmem.types import Session, Turn, Unit

Builder = Callable[[Sequence[Session]], list[Unit]]
Sentences = Callable[[Session], list[str]]
Form = Literal["plain", "speaker", "dated"]

MEMORY = "memory"  # the kind of units that summarise a session and do not show its words


@dataclass(frozen=True, slots=True)
class KeyForm:
    """What a key contains: the words (plain), with their speakers (speaker), and with the date (dated).

    The words of `before` and `after` neighbouring units of the same session are included. A `rate` below 1 compresses
    the key.
    """

    form: Form = "plain"
    before: int = 0
    after: int = 0
    rate: float = 1.0


def build_turns(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each turn."""
    return [unit for session in sessions for unit in utterance_units(session)]


def build_exchanges(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each exchange."""
    return [unit for session in sessions for unit in exchange_units(session)]


def build_sessions(sessions: Sequence[Session]) -> list[Unit]:
    """A unit for each session."""
    return [unit for session in sessions for unit in session_units(session)]


def build_segments(sessions: Sequence[Session], segmenter: Segmenter) -> list[Unit]:
    """A unit for each segment of the segmenter."""
    units: list[Unit] = []
    for session, ranges in zip(sessions, segmenter.segment(sessions), strict=True):
        exchanges = session.exchanges()
        for number, segment in enumerate(ranges):
            turns = [turn for exchange in exchanges[segment.start : segment.stop] for turn in exchange.turns()]
            units.append(transcript_unit(session, f"g{number}", turns, "segment"))
    return units


def build_memories(sessions: Sequence[Session], sentences: Sentences) -> list[Unit]:
    """A unit for each sentence that summarises a session."""
    return [unit for session in sessions for unit in statement_units(session, sentences(session), MEMORY)]


def apply_key_form(
    units: Sequence[Unit], sessions: Sequence[Session], form: KeyForm, compressor: Compressor | None = None
) -> list[Unit]:
    """The units with keys of this form. Raises BadInput for a rate below 1 without a compressor."""
    turns = {turn.id: turn for session in sessions for turn in session.turns}
    result: list[Unit] = []
    for _, group in groupby(units, key=lambda unit: unit.session):
        neighbours = list(group)
        result += [replace(unit, key=_key(neighbours, place, form, turns)) for place, unit in enumerate(neighbours)]
    if form.rate == 1:
        return result
    if compressor is None:
        raise BadInput(f"a rate of {form.rate} needs a compressor")
    return compress_keys(result, compressor, form.rate)


def compress_keys(units: Sequence[Unit], compressor: Compressor, rate: float) -> list[Unit]:
    """The units with their keys compressed, all at once; a key that would become empty is left unchanged."""
    keys = compressor.compress([unit.key for unit in units], rate)
    return [replace(unit, key=key or unit.key) for unit, key in zip(units, keys, strict=True)]


def _key(neighbours: Sequence[Unit], place: int, form: KeyForm, turns: Mapping[str, Turn]) -> str:
    included = neighbours[max(0, place - form.before) : place + form.after + 1]
    words = "\n".join(_words(unit, form.form, turns) for unit in included)
    return f"{day(neighbours[place].time)}\n{words}" if form.form == "dated" else words


def _words(unit: Unit, form: Form, turns: Mapping[str, Turn]) -> str:
    if unit.kind == MEMORY:
        return unit.text
    sources = [turns[key] for key in unit.sources]
    return "\n".join(turn.text for turn in sources) if form == "plain" else transcript(sources)


@dataclass(frozen=True, slots=True)
class SessionSentences:
    """The sentences of a session; `digest` is over its turns and the maker."""

    session: str
    digest: str
    sentences: list[str]


class SentenceCache:
    """Sentences of sessions in an open log, so that an interrupted run resumes.

    `make` is called for sessions that the log lacks; `maker` names it (model and prompt), and sentences of another
    maker are not used.
    """

    def __init__(
        self, log: JsonlLog[SessionSentences], maker: str, make: Callable[[Sequence[Turn]], list[str]]
    ) -> None:
        self._log, self._maker, self._make = log, maker, make
        self._sentences = {entry.digest: entry.sentences for entry in log.records}

    def __call__(self, session: Session) -> list[str]:
        """The sentences of a session."""
        digest = sha256("\n".join([self._maker, *map(line, session.turns)]).encode()).hexdigest()
        if digest not in self._sentences:
            entry = SessionSentences(session.id, digest, self._make(session.turns))
            self._log.append(entry)
            self._sentences[digest] = entry.sentences
        return self._sentences[digest]


CoveredIds = Sequence[str]


def recall_at(ranking: Sequence[CoveredIds], gold: Set[str], k: int) -> float:
    """The share of the gold ids that the first `k` units cover."""
    return len(gold & {*chain.from_iterable(ranking[:k])}) / len(gold)


def hit_at(ranking: Sequence[CoveredIds], gold: Set[str], k: int) -> float:
    """1 if the first `k` units cover a gold id, else 0."""
    return float(recall_at(ranking, gold, k) > 0)


def reciprocal_rank(ranking: Sequence[CoveredIds], gold: Set[str]) -> float:
    """1 / the rank of the first unit that covers a gold id, counted from 1; 0 if there is none. Its mean is MRR."""
    ranks = (rank for rank, ids in enumerate(ranking, start=1) if not gold.isdisjoint(ids))
    first = next(ranks, None)
    return 0.0 if first is None else 1 / first


def dcg(ranking: Sequence[CoveredIds], gold: Set[str], p: int) -> float:
    """Discounted cumulative gain over the first `p` retrieved turns (SeCom, appendix A.8, eq. 6).

    sum of rel_i / log2(i + 1), where i counts retrieved turns: those of one unit follow each other. Each of the N gold
    turns is worth 1/N, so that units of any size are comparable; a turn counts once.
    """
    turns = list(dict.fromkeys(chain.from_iterable(ranking)))[:p]
    return sum(1 / len(gold) / log2(i + 1) for i, turn in enumerate(turns, start=1) if turn in gold)


def tokens_at(tokens: Sequence[int], k: int) -> int:
    """Tokens of the first `k` units."""
    return sum(tokens[:k])


def units_within(tokens: Sequence[int], budget: int) -> int:
    """How many of the first units have at most `budget` tokens together."""
    used = 0
    for index, size in enumerate(tokens):
        used += size
        if used > budget:
            return index
    return len(tokens)


def recall_within(ranking: Sequence[CoveredIds], tokens: Sequence[int], gold: Set[str], budget: int) -> float:
    """The share of the gold ids covered by the first units that have at most `budget` tokens together."""
    return recall_at(ranking, gold, units_within(tokens, budget))


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
    """The measures of a ranking of units, each with the ids that it covers and its size in tokens.

    Units that cover the same, such as turns of one session where sessions are to be found, have one rank: the first.
    """
    ranking, sizes = [ids for ids, _ in units], [size for _, size in units]
    ranks = list(dict.fromkeys(map(tuple, ranking)))
    depths = [depth for depth in DEPTHS if depth <= width]
    return {
        **{f"recall@{depth}": recall_at(ranks, gold, depth) for depth in depths},
        **{f"hit@{depth}": hit_at(ranks, gold, depth) for depth in depths},
        "mrr": reciprocal_rank(ranks, gold),
        f"dcg@{DCG_TURNS}": dcg(ranking, gold, DCG_TURNS),
        **{f"tokens@{depth}": float(tokens_at(sizes, depth)) for depth in depths},
        **{f"recall@{budget}t": recall_within(ranking, sizes, gold, budget) for budget in BUDGETS},
    }
