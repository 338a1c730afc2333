"""What a retriever learns from: questions that name their evidence, replies that use a gold memory, and own pairs.

Each becomes a corpus of units and questions, and triplets of a question, a right and a wrong text. Depends on no model.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets import read_dataset
from localmem.evaluation.datasets.readers import UNDATED, Record, file_sha256, read_records
from localmem.evaluation.episodes import Dataset, Episode, Half, Probe, half_of
from localmem.evaluation.evidence_retrieval import (
    Builder,
    KeyForm,
    apply_key_form,
    build_exchanges,
    build_turns,
    probes_with_evidence,
    query_text,
)
from localmem.evaluation.memory_turns import used_sentences
from localmem.retrieval.bm25 import BM25Retriever
from localmem.types import Session, Turn

PAIRS = "pairs"  # the name of our own JSONL: query, positive, group, and optionally negatives
LICENCES: Mapping[str, str] = {
    "locomo": "LoCoMo, CC BY-NC 4.0",
    "longmemeval": "LongMemEval, MIT",
    "mtbenchplus": "MT-Bench+, MIT",
    "carecall": "CareCall_mem, CC BY-NC-SA 4.0",
    "msc": "Multi-Session Chat, no licence stated, NC by its users",
}
MEMORY_SOURCES = ("carecall", "msc")  # whose replies are dialogues to find memory sentences for
SOURCES = (*LICENCES, PAIRS)

_VALIDATION = 10  # one question in this many is held out


class Triplet(NamedTuple):
    """A question, a text that should be close to it, and one that should be farther away."""

    query: str
    positive: str
    negative: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """A data set, how its units are built, and the wrong texts that the file itself lists for a probe."""

    dataset: Dataset
    units: Builder
    negatives: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def select(self, half: Half) -> "Corpus":
        """The episodes of one half."""
        return replace(self, dataset=self.dataset.select(half))

    def count_questions(self) -> int:
        """How many questions have evidence."""
        return sum(len(probes_with_evidence(episode, "turns")) for episode in self.dataset.episodes)


class _Pair(Record):
    query: str = Field(min_length=1)
    positive: str = Field(min_length=1)
    negatives: tuple[str, ...] = ()
    group: str = Field(min_length=1)


def read_corpus(name: str, path: Path, unit: Literal["turn", "exchange"]) -> Corpus:
    """A data set with its turns or exchanges as units, or our own pairs, whose units are texts. Raises BadInput."""
    if name == PAIRS:
        return _read_pairs(path)
    if name not in SOURCES:
        raise BadInput(f"a retriever cannot learn from the data set {name!r}; use one of {', '.join(SOURCES)}")
    if name in MEMORY_SOURCES:
        dataset = read_dataset(name, path)
        return _pairs_corpus(name, dataset.sha256, [pair for each in dataset.episodes for pair in _memory_pairs(each)])
    # Speakers in the keys, as the memory systems index the units.
    build, form = build_turns if unit == "turn" else build_exchanges, KeyForm("speaker")
    return Corpus(read_dataset(name, path), lambda sessions: apply_key_form(build(sessions), sessions, form))


def hold_out_questions(corpus: Corpus) -> tuple[Corpus, Corpus]:
    """Hold out one question of ten for early stopping; it is searched for among the same units as the others."""
    ids = [probe.id for episode in corpus.dataset.episodes for probe in probes_with_evidence(episode, "turns")]
    held_out = set(ids[::-_VALIDATION] if len(ids) < _VALIDATION else ids[_VALIDATION - 1 :: _VALIDATION])
    learned = _filter_probes(corpus, lambda probe: probe.id not in held_out)
    return learned, _filter_probes(corpus, lambda probe: probe.id in held_out)


def mine_triplets(corpus: Corpus, *, positives: int, hard: int, far: int, language: str, seed: int) -> list[Triplet]:
    """The triplets of all questions with evidence, in order; reproducible by seed.

    For each question at most `positives` right texts, and as wrong ones those that the file lists, `hard` from BM25 in
    `language`, and `far` from sessions without evidence.
    """
    triplets: list[Triplet] = []
    for episode in corpus.dataset.episodes:
        units = corpus.units(episode.sessions)
        by_id = {unit.id: unit for unit in units}
        probes = probes_with_evidence(episode, "turns")
        index = BM25Retriever(language=language)
        index.add(units)
        most = max((len(probe.evidence) for probe in probes), default=0)
        results = index.search([probe.question for probe in probes], hard + most)
        for probe, matches in zip(probes, results, strict=True):
            right = [unit for unit in units if not set(unit.sources).isdisjoint(probe.evidence)]
            near = [unit for match in matches if (unit := by_id[match.id]) not in right][:hard]
            elsewhere = [unit for unit in units if unit.session not in probe.sessions]
            rng = random.Random(f"{seed}/{probe.id}")  # noqa: S311  # not used for security
            wrong = [*near, *rng.sample(elsewhere, min(far, len(elsewhere)))]
            texts = dict.fromkeys([*corpus.negatives.get(probe.id, ()), *(unit.key for unit in wrong)])
            negatives = [text for text in texts if text not in {unit.key for unit in right}]
            triplets += [Triplet(probe.question, unit.key, text) for unit in right[:positives] for text in negatives]
    return triplets


def _filter_probes(corpus: Corpus, predicate: Callable[[Probe], bool]) -> Corpus:
    """Some of the questions; episodes without any are dropped."""
    episodes = (
        replace(episode, probes=tuple(probe for probe in probes_with_evidence(episode, "turns") if predicate(probe)))
        for episode in corpus.dataset.episodes
    )
    remaining = tuple(episode for episode in episodes if episode.probes)
    return replace(corpus, dataset=replace(corpus.dataset, episodes=remaining))


def _read_pairs(path: Path) -> Corpus:
    return _pairs_corpus(PAIRS, file_sha256(path), [pair for _, pair in read_records(path, _Pair)])


def _memory_pairs(episode: Episode) -> Iterator[_Pair]:
    """Each dialogue whose reply uses the gold memory, with the sentences that it uses."""
    for probe in episode.probes:
        for sentence in used_sentences(episode, probe):
            yield _Pair(query=query_text(probe, "dialogue"), positive=sentence, group=episode.id)


def _pairs_corpus(name: str, sha256: str, pairs: Iterable[_Pair]) -> Corpus:
    """Each group becomes an episode, each text a session."""
    groups: dict[str, list[_Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.group, []).append(pair)
    negatives: dict[str, tuple[str, ...]] = {}
    episodes = tuple(_episode(name, own, negatives) for name, own in groups.items())
    dataset = Dataset(name, sha256, episodes)
    return Corpus(dataset, lambda sessions: apply_key_form(build_turns(sessions), sessions, KeyForm()), negatives)


def _episode(group: str, pairs: Sequence[_Pair], negatives: dict[str, tuple[str, ...]]) -> Episode:
    texts = dict.fromkeys(text for pair in pairs for text in (pair.positive, *pair.negatives))
    ids = {text: f"{group}/{number}" for number, text in enumerate(texts)}
    sessions = tuple(
        Session(ids[text], (Turn(f"{ids[text]}.0", "user", "User", text, UNDATED + timedelta(seconds=number)),))
        for number, text in enumerate(texts)
    )
    probes: list[Probe] = []
    for number, query in enumerate(dict.fromkeys(pair.query for pair in pairs)):
        own = [pair for pair in pairs if pair.query == query]
        name = f"{group}/q{number}"
        negatives[name] = tuple(dict.fromkeys(text for pair in own for text in pair.negatives))
        positive_ids = tuple(dict.fromkeys(ids[pair.positive] for pair in own))
        evidence = tuple(f"{session}.0" for session in positive_ids)
        probes.append(Probe(name, query, "", PAIRS, None, evidence, positive_ids))
    return Episode(group, half_of(group), sessions, tuple(probes))
