"""Key compression: recall against the compression rate, and how near questions are to the keys.

SeCom, section 2.3 and Figure 3: recall rises while at least half of the tokens remain, and questions come nearer to the
segments that answer them and move away from others. Receives compressors and an encoder; depends on neither.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from localmem.evaluation.episodes import Dataset
from localmem.evaluation.evidence_retrieval import RetrievalResult, probes_with_evidence
from localmem.evaluation.unit_builders import Builder, compress_keys
from localmem.reporting.bootstrap import difference, estimate
from localmem.retrieval.base import Encoder
from localmem.text.compress import Compressor
from localmem.text.dialogue import Count
from localmem.types import Session, Unit

UNCOMPRESSED = "none"


class Resampling(NamedTuple):
    """The bootstrap's seed and number of resamples."""

    seed: int
    resamples: int


@dataclass(frozen=True, slots=True)
class KeySet:
    """The units of all episodes with keys compressed in one way, by the ids of the episode's sessions."""

    compressor: str
    rate: float
    units: Mapping[tuple[str, ...], list[Unit]]

    def of(self, sessions: Sequence[Session]) -> list[Unit]:
        """The units of one episode."""
        return self.units[_session_ids(sessions)]


class Cosines(NamedTuple):
    """Mean cosine of one question to keys of units with its evidence, and to all other keys."""

    related: float
    unrelated: float


@dataclass(frozen=True, slots=True)
class KeySearch:
    """The result of one retriever with one set of keys; `kept` is the share of tokens that remained."""

    keys: KeySet
    kept: float
    retriever: str
    result: RetrievalResult

    def values(self, measure: str) -> list[float]:
        """The measure of each question."""
        return [row.measures[measure] for row in self.result.rows]


def uncompressed_keys(dataset: Dataset, units: Builder) -> KeySet:
    """The units as they are."""
    by_episode = {_session_ids(episode.sessions): units(episode.sessions) for episode in dataset.episodes}
    return KeySet(UNCOMPRESSED, 1.0, by_episode)


def compressed_keys(keys: KeySet, name: str, compressor: Compressor, rate: float) -> KeySet:
    """Compressed keys; all units of an episode are compressed together, as at the end of a session."""
    by_episode = {ids: compress_keys(units, compressor, rate) for ids, units in keys.units.items()}
    return KeySet(name, rate, by_episode)


def kept_share(keys: KeySet, original: KeySet, count: Count) -> float:
    """The share of the original keys' tokens that compression kept."""
    after, before = (
        sum(sum(count([unit.key for unit in units])) for units in each.units.values() if units)
        for each in (keys, original)
    )
    return after / max(1, before)


def question_cosines(dataset: Dataset, keys: KeySet, encoder: Encoder) -> list[Cosines]:
    """For each question with evidence in some units but not in all, in order."""
    cosines: list[Cosines] = []
    for episode in dataset.episodes:
        probes = probes_with_evidence(episode, "turns")
        units = keys.of(episode.sessions)
        if not probes or not units:
            continue
        questions = encoder.encode([probe.question for probe in probes], "query")
        matrix = questions @ encoder.encode([unit.key for unit in units], "passage").T
        for probe, row in zip(probes, matrix, strict=True):
            is_related = [not set(unit.sources).isdisjoint(probe.evidence) for unit in units]
            if any(is_related) and not all(is_related):
                related = [float(value) for value, own in zip(row, is_related, strict=True) if own]
                unrelated = [float(value) for value, own in zip(row, is_related, strict=True) if not own]
                cosines.append(Cosines(sum(related) / len(related), sum(unrelated) / len(unrelated)))
    return cosines


_SIDES: Mapping[str, Callable[[Cosines], float]] = {
    "related": lambda cosines: cosines.related,
    "unrelated": lambda cosines: cosines.unrelated,
    "gap": lambda cosines: cosines.related - cosines.unrelated,
}


def cosine_figures(
    keys: KeySet, current: Sequence[Cosines], original: Sequence[Cosines], resampling: Resampling
) -> dict[str, object]:
    """Mean cosines with intervals, and their paired change by compression; `gap` is related - unrelated."""
    seed, resamples = resampling
    figures: dict[str, object] = {"compressor": keys.compressor, "rate": keys.rate}
    for name, side in _SIDES.items():
        values, before = [side(each) for each in current], [side(each) for each in original]
        figures[name] = estimate(values, seed=seed, resamples=resamples).as_dict()
        if keys.compressor != UNCOMPRESSED:
            figures[f"{name}_change"] = difference(values, before, seed=seed, resamples=resamples).as_dict()
    return figures


def recall_figures(search: KeySearch, measures: Sequence[str], resampling: Resampling) -> dict[str, object]:
    """A retriever's recall with some keys, with intervals."""
    seed, resamples = resampling
    return {
        "retriever": search.retriever,
        "compressor": search.keys.compressor,
        "rate": search.keys.rate,
        "kept": round(search.kept, 4),
        "units": search.result.units,
        "measures": {
            name: estimate(search.values(name), seed=seed, resamples=resamples).as_dict() for name in measures
        },
    }


def difference_figures(
    searches: Sequence[KeySearch], control: str, measures: Sequence[str], resampling: Resampling
) -> list[dict[str, object]]:
    """Every compression minus none, and minus the control compressor at the same rate, paired by question."""
    seed, resamples = resampling
    return [
        {
            "what": f"{ours.keys.compressor} - {other.keys.compressor}",
            "retriever": ours.retriever,
            "rate": ours.keys.rate,
            "measure": name,
            **difference(ours.values(name), other.values(name), seed=seed, resamples=resamples).as_dict(),
        }
        for ours in searches
        for other in searches
        if _is_compared(ours, other, control)
        for name in measures
    ]


def _is_compared(ours: KeySearch, other: KeySearch, control: str) -> bool:
    if ours.retriever != other.retriever or ours is other or ours.keys.compressor == UNCOMPRESSED:
        return False
    is_control = other.keys.compressor == control != ours.keys.compressor and other.keys.rate == ours.keys.rate
    return is_control or other.keys.compressor == UNCOMPRESSED


def _session_ids(sessions: Sequence[Session]) -> tuple[str, ...]:
    return tuple(session.id for session in sessions)
