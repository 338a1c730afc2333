"""Does compressing keys help the search, as SeCom claims? Recall against the rate, and how near questions come to keys.

SeCom, section 2.3 and Figure 3: recall rises while at least half of the tokens stay, questions come nearer to segments
that answer them and move away from others. Receives compressors and an encoder; knows neither.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from localmem.evaluation.episodes import Data
from localmem.evaluation.evidence_retrieval import Result, asked
from localmem.evaluation.unit_builders import Builder, shortened
from localmem.reporting.bootstrap import Estimate, difference, estimate
from localmem.retrieval.base import Encoder
from localmem.text.base import Compressor
from localmem.text.dialogue import Count
from localmem.types import Session, Unit

NONE = "none"  # the name of no compression

Draws = tuple[int, int]  # seed and resamples of the bootstrap


@dataclass(frozen=True, slots=True)
class Keys:
    """The units of all episodes, with keys compressed in one way; each episode's under the ids of its sessions."""

    compressor: str
    rate: float
    units: Mapping[tuple[str, ...], list[Unit]]

    def of(self, sessions: Sequence[Session]) -> list[Unit]:
        """Those of one episode."""
        return self.units[_name(sessions)]


class Nearness(NamedTuple):
    """Of one question: the mean cosine to keys of units that hold its evidence, and to all other keys."""

    related: float
    unrelated: float


@dataclass(frozen=True, slots=True)
class Searched:
    """What was found with some keys by one retriever, and the share of the tokens that those keys kept."""

    keys: Keys
    kept: float
    retriever: str
    result: Result

    def values(self, measure: str) -> list[float]:
        """The measure of each question."""
        return [row.measures[measure] for row in self.result.rows]


def plain(data: Data, units: Builder) -> Keys:
    """The units as they are."""
    return Keys(NONE, 1.0, {_name(episode.sessions): units(episode.sessions) for episode in data.episodes})


def compressed(keys: Keys, name: str, compressor: Compressor, rate: float) -> Keys:
    """The same with compressed keys; all of an episode go through the compressor together, as at a session's end."""
    return Keys(name, rate, {episode: shortened(units, compressor, rate) for episode, units in keys.units.items()})


def kept(keys: Keys, before: Keys, count: Count) -> float:
    """The share of the keys' tokens that compression really kept."""
    now, then = (
        sum(sum(count([unit.key for unit in units])) for units in one.units.values() if units) for one in (keys, before)
    )
    return now / max(1, then)


def nearness(data: Data, keys: Keys, encoder: Encoder) -> list[Nearness]:
    """For each question with evidence, in order; one whose evidence is in every unit or in none is passed over."""
    found: list[Nearness] = []
    for episode in data.episodes:
        probes = asked(episode, "turns")
        units = keys.of(episode.sessions)
        if not probes or not units:
            continue
        questions = encoder.encode([probe.question for probe in probes], "query")
        cosines = questions @ encoder.encode([unit.key for unit in units], "passage").T
        for probe, row in zip(probes, cosines, strict=True):
            holds = [not set(unit.sources).isdisjoint(probe.evidence) for unit in units]
            if any(holds) and not all(holds):
                near = [float(value) for value, right in zip(row, holds, strict=True) if right]
                far = [float(value) for value, right in zip(row, holds, strict=True) if not right]
                found.append(Nearness(sum(near) / len(near), sum(far) / len(far)))
    return found


def similarity(keys: Keys, now: Sequence[Nearness], before: Sequence[Nearness], draws: Draws) -> dict[str, object]:
    """Mean cosines with intervals, and what compression changed, question by question; `gap` is related - unrelated."""
    sides: Mapping[str, Callable[[Nearness], float]] = {
        "related": lambda one: one.related,
        "unrelated": lambda one: one.unrelated,
        "gap": lambda one: one.related - one.unrelated,
    }
    seed, resamples = draws
    held: dict[str, object] = {"compressor": keys.compressor, "rate": keys.rate}
    for name, side in sides.items():
        values, old = [side(one) for one in now], [side(one) for one in before]
        held[name] = plainly(estimate(values, seed=seed, resamples=resamples))
        if keys.compressor != NONE:
            held[f"{name}_change"] = plainly(difference(values, old, seed=seed, resamples=resamples))
    return held


def recalled(one: Searched, measures: Sequence[str], draws: Draws) -> dict[str, object]:
    """A retriever's recall over some keys, with intervals."""
    seed, resamples = draws
    return {
        "retriever": one.retriever,
        "compressor": one.keys.compressor,
        "rate": one.keys.rate,
        "kept": round(one.kept, 4),
        "units": one.result.units,
        "measures": {name: plainly(estimate(one.values(name), seed=seed, resamples=resamples)) for name in measures},
    }


def compared(found: Sequence[Searched], control: str, measures: Sequence[str], draws: Draws) -> list[dict[str, object]]:
    """Every compression against none, and against the control at the same rate, question by question."""
    seed, resamples = draws
    rows: list[dict[str, object]] = []
    for one in found:
        for other in found:
            same = one.retriever == other.retriever and one is not other and one.keys.compressor != NONE
            beside = other.keys.compressor == control != one.keys.compressor and other.keys.rate == one.keys.rate
            if same and (beside or other.keys.compressor == NONE):
                rows += [
                    {
                        "what": f"{one.keys.compressor} - {other.keys.compressor}",
                        "retriever": one.retriever,
                        "rate": one.keys.rate,
                        "measure": name,
                        **plainly(difference(one.values(name), other.values(name), seed=seed, resamples=resamples)),
                    }
                    for name in measures
                ]
    return rows


def plainly(found: Estimate) -> dict[str, float]:
    """An estimate for JSON."""
    return {name: round(value, 4) for name, value in found._asdict().items()}


def _name(sessions: Sequence[Session]) -> tuple[str, ...]:
    return tuple(session.id for session in sessions)
