"""What a retriever learns from: a question, a text that answers it, and a text that does not though it well might.

Out of data sets whose questions name their evidence, and of our own JSONL. Knows no model; wrong texts come from other
sessions and from BM25 (Keep Me Updated, appendix B.3, takes them from other sessions).
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.datasets.files import Record, file_sha256, read_records
from localmem.evaluation.episodes import Dataset, Episode, Half, Probe, half_of
from localmem.evaluation.evidence_retrieval import asked
from localmem.evaluation.unit_builders import Builder, KeyForm, exchanges_of, keyed, turns_of
from localmem.retrieval.bm25 import BM25Retriever
from localmem.types import Session, Turn, Unit

PAIRS = "pairs"  # the name of our own JSONL: query, positive, group, and maybe negatives
LICENCES: Mapping[str, str] = {
    "locomo": "LoCoMo, CC BY-NC 4.0",
    "longmemeval": "LongMemEval, MIT",
    "mtbenchplus": "MT-Bench+, MIT",
}
SOURCES = (*LICENCES, PAIRS)

_UNDATED = datetime(1970, 1, 1, tzinfo=UTC)
_VALIDATION = 10  # every so many questions one is kept back


class Triplet(NamedTuple):
    """A question, a text that is to be near it, and one that is to be farther."""

    query: str
    positive: str
    negative: str


@dataclass(frozen=True, slots=True)
class Mining:
    """How many texts a question brings: `positives` at most, of the wrong ones `hard` from BM25 and `far` at random.

    `far` are drawn from the sessions that hold no evidence of the question. `language` is BM25's.
    """

    positives: int = 4
    hard: int = 2
    far: int = 1
    language: str = "english"


@dataclass(frozen=True, slots=True)
class Material:
    """Data with its units, and the wrong texts that the file itself names for a question."""

    data: Dataset
    units: Builder
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, half: Half) -> "Material":
        """The episodes of one half."""
        return replace(self, data=self.data.select(half))

    def questions(self) -> int:
        """How many questions have evidence."""
        return sum(len(asked(episode, "turns")) for episode in self.data.episodes)


class _Pair(Record):
    query: str = Field(min_length=1)
    positive: str = Field(min_length=1)
    negatives: tuple[str, ...] = ()
    group: str = Field(min_length=1)


def read(name: str, path: Path, unit: Literal["turn", "exchange"]) -> Material:
    """A data set with its turns or exchanges, or our own pairs, whose units are texts. Raises BadInput."""
    if name == PAIRS:
        return _pairs(path)
    built = turns_of if unit == "turn" else exchanges_of
    return Material(read_dataset(name, path), partial(_spoken, built))


def divided(material: Material) -> tuple[Material, Material]:
    """One question of ten is kept back to stop early by; it is searched for among the same units as the others."""
    probes = [probe.id for episode in material.data.episodes for probe in asked(episode, "turns")]
    kept = set(probes[::-_VALIDATION] if len(probes) < _VALIDATION else probes[_VALIDATION - 1 :: _VALIDATION])
    return (
        _only(material, lambda probe: probe.id not in kept),
        _only(material, lambda probe: probe.id in kept),
    )


def triplets(material: Material, how: Mining, seed: int) -> list[Triplet]:
    """The triplets of all questions with evidence, in order; the same seed draws the same texts."""
    return [one for episode in material.data.episodes for one in _mined(episode, material, how, seed)]


def _only(material: Material, wanted: Callable[[Probe], bool]) -> Material:
    """Some of the questions; episodes that none of them is about go."""
    episodes = (
        replace(episode, probes=tuple(probe for probe in asked(episode, "turns") if wanted(probe)))
        for episode in material.data.episodes
    )
    return replace(material, data=replace(material.data, episodes=tuple(one for one in episodes if one.probes)))


def _spoken(built: Builder, sessions: Sequence[Session]) -> list[Unit]:
    """The units with the speakers in their keys, as the memory systems index them."""
    return keyed(built(sessions), sessions, KeyForm("speaker"))


def _mined(episode: Episode, material: Material, how: Mining, seed: int) -> Iterable[Triplet]:
    units = material.units(episode.sessions)
    probes = asked(episode, "turns")
    index = BM25Retriever(language=how.language)
    index.add(units)
    most = max((len(probe.evidence) for probe in probes), default=0)
    found = index.search([probe.question for probe in probes], how.hard + most)
    known = {unit.id: unit for unit in units}
    for probe, matches in zip(probes, found, strict=True):
        right = [unit for unit in units if not set(unit.sources).isdisjoint(probe.evidence)]
        near = [known[match.id] for match in matches]
        wrong = _wrong(probe, right, near, units, how, random.Random(f"{seed}/{probe.id}"))  # noqa: S311  # no secret
        held = {unit.key for unit in right}
        texts = dict.fromkeys([*material.named.get(probe.id, ()), *(unit.key for unit in wrong)])
        for unit in right[: how.positives]:
            yield from (Triplet(probe.question, unit.key, text) for text in texts if text not in held)


def _wrong(
    probe: Probe, right: Sequence[Unit], near: Sequence[Unit], units: Sequence[Unit], how: Mining, draw: random.Random
) -> list[Unit]:
    """BM25's best that hold no evidence, and some of sessions that hold none."""
    ids = {unit.id for unit in right}
    hard = [unit for unit in near if unit.id not in ids][: how.hard]
    elsewhere = [unit for unit in units if unit.session not in probe.sessions]
    return [*hard, *draw.sample(elsewhere, min(how.far, len(elsewhere)))]


def _pairs(path: Path) -> Material:
    """Each group is a memory of its own, each text a session of its own."""
    groups: dict[str, list[_Pair]] = {}
    for _, item in read_records(path, _Pair):
        groups.setdefault(item.group, []).append(item)
    named: dict[str, tuple[str, ...]] = {}
    episodes = tuple(_episode(name, items, named) for name, items in groups.items())
    return Material(Dataset(PAIRS, file_sha256(path), episodes), _plain, named)


def _plain(sessions: Sequence[Session]) -> list[Unit]:
    return keyed(turns_of(sessions), sessions, KeyForm("plain"))


def _episode(group: str, items: Sequence[_Pair], named: dict[str, tuple[str, ...]]) -> Episode:
    texts = dict.fromkeys(text for item in items for text in (item.positive, *item.negatives))
    ids = {text: f"{group}/{number}" for number, text in enumerate(texts)}
    sessions = tuple(_session(ids[text], text, number) for number, text in enumerate(texts))
    probes: list[Probe] = []
    for number, query in enumerate(dict.fromkeys(item.query for item in items)):
        own = [item for item in items if item.query == query]
        name = f"{group}/q{number}"
        named[name] = tuple(dict.fromkeys(text for item in own for text in item.negatives))
        held = tuple(dict.fromkeys(ids[item.positive] for item in own))
        evidence = tuple(f"{one}.0" for one in held)
        probes.append(Probe(name, query, "", PAIRS, None, evidence, held))
    return Episode(group, half_of(group), sessions, tuple(probes))


def _session(name: str, text: str, number: int) -> Session:
    return Session(name, (Turn(f"{name}.0", "user", "User", text, _UNDATED + timedelta(seconds=number)),))


def check(learned: Sequence[Material], reported: Sequence[Material]) -> None:
    """Raises BadInput where a half has no question to learn from or to be measured by."""
    for name, half in (("choose", learned), ("report", reported)):
        if not sum(material.questions() for material in half):
            raise BadInput(
                f"no question with evidence falls into the half {name!r}, which ids decide; give data of more "
                "conversations or groups"
            )
