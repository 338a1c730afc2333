"""CareCall-memory (Bae et al., Findings of EMNLP 2022): five calls of a care service to an elderly person, Korean.

Source: naver-ai/carecall-memory, carecall-memory_en_auto_translated.json (machine-translated) or the Korean original,
which is had on request. Licence: NAVER's own; for non-commercial research only, not to be changed or passed on.

A list of episodes, each a list of two to five sessions. The service's turns are asked for after the session before,
all but the one that opens a call: nobody said anything yet. Sessions stand ten days apart from 1970 on, for the authors
take the gap to be one to two weeks. `memory` is what is held of the person before a session, revised by people: it is
the gold memory of the session before, and nothing is known about the last session's. The sentences of `summary` are
what their session alone told, which `summaries` gives.
"""

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from localmem.evaluation.datasets.dialogues import UNDATED, Names, memory, next_probes, session
from localmem.evaluation.datasets.files import Record, file_sha256, read_records
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, Probe, counted, differing, half_of
from localmem.types import Session, Unit

COUNTS = (770,)  # episodes: as many as there are first sessions (README of the data, "Data Statistics")
SESSIONS = (3581,)

_APART = timedelta(days=10)
_SERVICE = "CareCall"


class _Said(Record):
    role: Literal["system", "user"]
    text: str


class _Session(Record):
    guid: str = Field(pattern=r".+-S\d+$")
    dialogue: list[_Said] = Field(min_length=1)
    memory: list[str]
    summary: list[str]


class _Episode(Record):
    sessions: list[_Session] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return {"sessions": value} if isinstance(value, list) else value


def read(path: Path) -> Dataset:
    """Every list of sessions as an episode. Raises BadInput with file and record."""
    oddities: Counter[str] = Counter()
    names = Names()
    episodes = tuple(_episode(item, names, oddities) for _, item in read_records(path, _Episode))
    count = sum(len(episode.sessions) for episode in episodes)
    notes = (*differing("episodes", len(episodes), COUNTS), *differing("sessions", count, SESSIONS))
    return Dataset("carecall", file_sha256(path), episodes, (*counted(oddities), *notes))


def summaries(path: Path) -> dict[str, tuple[str, ...]]:
    """By session id, the sentences that sum up that session alone."""
    names = Names()
    found: dict[str, tuple[str, ...]] = {}
    for _, item in read_records(path, _Episode):
        name = names.once(_name(item))
        found |= {f"{name}/{_number(one)}": tuple(one.summary) for one in item.sessions}
    return found


def _episode(item: _Episode, names: Names, oddities: Counter[str]) -> Episode:
    name = names.once(_name(item))
    sessions = tuple(_session(f"{name}/{_number(one)}", one) for one in item.sessions)
    probes: list[Probe] = []
    golds: dict[str, tuple[Unit, ...]] = {}
    before = BEFORE_ALL
    for held, one in zip(sessions, item.sessions, strict=True):
        kind = f"session {_number(one)}"
        probes += next_probes(held.id, held.turns, kind=kind, after=before, repliers=(_SERVICE,))
        if before != BEFORE_ALL:
            golds[before] = _remembered(before, one, held.turns[0].time - _APART)
        oddities["episodes that begin with a memory, which is given"] += before == BEFORE_ALL and bool(one.memory)
        before = held.id
    given = _remembered(f"{name}/0", item.sessions[0], UNDATED)
    return Episode(name, half_of(_name(item)), sessions, tuple(probes), given, golds)


def _session(name: str, one: _Session) -> Session:
    said = ((_SERVICE if turn.role == "system" else "User", turn.text) for turn in one.dialogue)
    return session(name, said, "User", UNDATED + (_number(one) - 1) * _APART)


def _remembered(of: str, one: _Session, time: datetime) -> tuple[Unit, ...]:
    return tuple(memory(f"{of}/m{number}", text, "User", of, time) for number, text in enumerate(one.memory, start=1))


def _name(item: _Episode) -> str:
    return item.sessions[0].guid.rpartition("-S")[0]


def _number(one: _Session) -> int:
    return int(one.guid.rpartition("-S")[2])
