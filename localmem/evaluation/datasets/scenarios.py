"""Scenarios: people's conversations with an assistant over weeks, with questions, paraphrases and ordinary requests.

Written for localmem. A folder holds one JSON file a person, PERSON.json: `sessions` (`started_at`, `turns` with `role`
and `content`), `probes` and `ordinary`, requests that need no memory. The `evidence` of a probe is a list of
[session, turn], both from 0. A reply is right if it contains any text of `must_contain` and none of `must_not_contain`.
Types of probes: single-fact, multi-session, knowledge-update, temporal, preference, assistant-said, counterfactual (the
question presupposes something false), abstention (never told) and forgotten (the person asked to forget it).

A person is an episode, and the half is that of the author, the part of the id before "-". Times without a zone are UTC,
and turns are one second apart. As episodes, only the questions are probes, and a forgotten one has no evidence: its
turns are what must not come up. A question comes a day after the last session.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import Field

from localmem import files
from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import Record, build_session, file_sha256, parse_record, parse_value
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of, sessions_with
from localmem.types import Session

ABSTENTION, FORGOTTEN = "abstention", "forgotten"
_CURE = "give a folder with one .json file a person, or one such file"
DENIED = (ABSTENTION, FORGOTTEN)  # types of probes that the right reply does not answer


class ScenarioProbe(Record):
    """A question as it stands in the file."""

    type: str
    question: str
    paraphrase: str = ""
    answer: str = ""
    reply: str = ""
    must_contain: tuple[str, ...] = ()
    must_not_contain: tuple[str, ...] = ()
    evidence: tuple[tuple[int, int], ...] = ()

    @property
    def is_answerable(self) -> bool:
        """Whether the person told the answer and did not ask to forget it."""
        return self.type not in DENIED


class _Message(Record):
    role: Literal["user", "assistant"]
    content: str


class _Session(Record):
    started_at: datetime
    turns: list[_Message] = Field(min_length=1)


class _Person(Record):
    language: str = "en"
    sessions: list[_Session] = Field(min_length=1)
    probes: list[ScenarioProbe] = Field(default_factory=list)
    ordinary: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Person:
    """One file. `evidence` holds the ids of each probe's evidence turns, those of forgotten ones too."""

    id: str
    language: str
    sessions: tuple[Session, ...]
    probes: tuple[ScenarioProbe, ...]
    evidence: tuple[tuple[str, ...], ...]
    ordinary: tuple[str, ...]

    @property
    def author(self) -> str:
        """The part of the id before "-"."""
        return self.id.partition("-")[0]


def read(path: Path) -> Dataset:
    """One episode a person, from a folder of people or one person's file. Raises BadInput with file and place."""
    people = read_people(path)
    paraphrases = sum(bool(probe.paraphrase) for person in people for probe in person.probes)
    notes = (f"paraphrases, not used as probes: {paraphrases}",) if paraphrases else ()
    return Dataset("scenarios", _sha256(_files(path)), tuple(map(_episode, people)), notes)


def read_people(path: Path, authors: Collection[str] = ()) -> list[Person]:
    """The people of a folder, or of one file, by id; with `authors` only theirs. Raises BadInput."""
    paths = _files(path)
    selected = [file for file in paths if not authors or file.stem.partition("-")[0] in authors]
    present = {file.stem.partition("-")[0] for file in paths}
    if unknown := sorted(set(authors) - present):
        raise BadInput(f"{path} has no person of the author {unknown[0]!r}; it has {', '.join(sorted(present))}")
    return [_read_person(file) for file in selected]


def _files(path: Path) -> list[Path]:
    paths = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not paths:
        raise BadInput(f"{path} contains no .json file; {_CURE}")
    return paths


def _sha256(paths: Sequence[Path]) -> str:
    """Of one file its own checksum, of several that of their names and checksums."""
    if len(paths) == 1:
        return file_sha256(paths[0])
    return sha256("".join(f"{file_sha256(path)}  {path.name}\n" for path in paths).encode()).hexdigest()


def _read_person(path: Path) -> Person:
    record = parse_record(str(path), parse_value(str(path), files.read_text(path, _CURE)), _Person)
    starts = [entry.started_at.replace(tzinfo=entry.started_at.tzinfo or UTC) for entry in record.sessions]
    for number, (earlier, later) in enumerate(pairwise(starts), start=1):
        if later < earlier:
            raise BadInput(
                f"{path}: session {number} starts at {later.isoformat()}, before the one above it; sort them"
            )
    sessions = tuple(
        build_session(
            f"{path.stem}/{number}", [(turn.role.capitalize(), turn.content) for turn in entry.turns], "User", start
        )
        for number, (entry, start) in enumerate(zip(record.sessions, starts, strict=True))
    )
    evidence = tuple(
        _turn_ids(f"{path}, probe {number}", probe, sessions) for number, probe in enumerate(record.probes)
    )
    return Person(path.stem, record.language, sessions, tuple(record.probes), evidence, record.ordinary)


def _turn_ids(place: str, probe: ScenarioProbe, sessions: Sequence[Session]) -> tuple[str, ...]:
    ids = []
    for session, turn in probe.evidence:
        if not (0 <= session < len(sessions) and 0 <= turn < len(sessions[session].turns)):
            raise BadInput(f"{place}: evidence [{session}, {turn}] is no turn of the file; count both from 0")
        ids.append(sessions[session].turns[turn].id)
    if not ids and probe.is_answerable:
        raise BadInput(f"{place}: a {probe.type} probe has no evidence; name the turns that answer it")
    return tuple(ids)


def _episode(person: Person) -> Episode:
    probes = []
    for number, (probe, ids) in enumerate(zip(person.probes, person.evidence, strict=True)):
        evidence = ids if probe.is_answerable else ()
        probes.append(
            Probe(
                f"{person.id}/q{number}",
                probe.question,
                probe.answer,
                probe.type,
                evidence=evidence,
                sessions=sessions_with(person.sessions, evidence),
                others=(probe.reply,) if probe.reply else (),
            )
        )
    return Episode(person.id, half_of(person.author), person.sessions, tuple(probes))
