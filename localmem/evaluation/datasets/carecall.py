"""CareCall-memory (Bae et al., Findings of EMNLP 2022): calls of a care service to elderly people, Korean.

Source: naver-ai/carecall-memory, carecall-memory_en_auto_translated.json (machine-translated) or the Korean original,
which is available on request. Licence: NAVER's own; for non-commercial research only, no changes, no redistribution.

A list of episodes, each a list of two to five sessions. The service's turns are the probes, after the previous session;
the turn that opens a call is not one, since nothing precedes it. Sessions are ten days apart from 1970 on: the authors
assume a gap of one to two weeks. `memory` is the memory before a session, revised by people: the gold memory of the
previous session. The last session has none.
"""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from localmem.evaluation.datasets import readers
from localmem.evaluation.datasets.readers import Reading, Record
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, Probe, half_of
from localmem.types import Session, Unit

COUNTS = (770,)  # episodes: as many as there are first sessions (README of the data, "Data Statistics")
SESSIONS = (3581,)

_GAP = timedelta(days=10)
_SERVICE = "CareCall"


class _Turn(Record):
    role: Literal["system", "user"]
    text: str


class _Session(Record):
    guid: str = Field(pattern=r".+-S\d+$")
    dialogue: list[_Turn] = Field(min_length=1)
    memory: list[str]

    @property
    def number(self) -> int:
        return int(self.guid.rpartition("-S")[2])


class _Episode(Record):
    sessions: list[_Session] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: object) -> object:
        return {"sessions": value} if isinstance(value, list) else value

    @property
    def name(self) -> str:
        return self.sessions[0].guid.rpartition("-S")[0]


def read(path: Path) -> Dataset:
    """One episode per list of sessions. Raises BadInput with file and record."""
    return readers.read_episodes("carecall", path, _Episode, _episode, episodes=COUNTS, sessions=SESSIONS)


def _episode(_place: str, record: _Episode, reading: Reading) -> Episode:
    name = reading.unique(record.name)
    sessions = tuple(_session(f"{name}/{item.number}", item) for item in record.sessions)
    probes: list[Probe] = []
    golds: dict[str, tuple[Unit, ...]] = {}
    previous = BEFORE_ALL
    for session, item in zip(sessions, record.sessions, strict=True):
        kind = f"session {item.number}"
        probes += readers.next_turn_probes(session.id, session.turns, kind=kind, after=previous, repliers=(_SERVICE,))
        if previous != BEFORE_ALL:
            golds[previous] = _memory(previous, item, session.turns[0].time - _GAP)
        previous = session.id
    memories = _memory(f"{name}/0", record.sessions[0], readers.UNDATED)
    reading.oddities["episodes that start with a memory, which is given"] += bool(memories)
    return Episode(name, half_of(record.name), sessions, tuple(probes), memories, golds)


def _session(name: str, item: _Session) -> Session:
    utterances = ((_SERVICE if turn.role == "system" else "User", turn.text) for turn in item.dialogue)
    return readers.build_session(name, utterances, "User", readers.UNDATED + (item.number - 1) * _GAP)


def _memory(session: str, item: _Session, time: datetime) -> tuple[Unit, ...]:
    return tuple(
        readers.memory_unit(f"{session}/m{n}", text, "User", session, time) for n, text in enumerate(item.memory, 1)
    )
