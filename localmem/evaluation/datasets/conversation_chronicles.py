"""Conversation Chronicles (Jang et al., EMNLP 2023): two people of a stated relationship in five sessions, by ChatGPT.

Source: jihyoung/ConversationChronicles on the Hugging Face hub, {train,valid,test}.jsonl. Licence: CC BY 4.0.

Each utterance of every session except the first is a probe, for both speakers, after the previous session.
`time_interval` names spans without lengths ("A few days after"): a few count as three, a couple as two, and sessions
keep these distances from 1970 on; an unknown span counts as a day, and the notes count it. The first speaker of an
episode takes the user's role. `summary` says what each session was about: its sentences so far are a session's gold
memory.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from pydantic import Field, model_validator

from localmem.errors import BadInput
from localmem.evaluation.datasets import readers
from localmem.evaluation.datasets.readers import Reading, Record
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of
from localmem.text.parse import sentences
from localmem.types import Session, Unit

COUNTS = (160_000, 20_000)  # episodes in train, and in valid and test (Jang et al., section 3.4)

_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_GAPS: Mapping[str, timedelta] = {
    "a few hours after": timedelta(hours=3),
    "a few days after": timedelta(days=3),
    "a few weeks after": timedelta(weeks=3),
    "a few months after": timedelta(days=90),
    "a couple of years after": timedelta(days=730),
}


class _Session(Record):
    dialogue: list[str]
    speakers: list[str]


class _Episode(Record):
    id: str = Field(alias="dataID")
    time_interval: list[str]
    summary: list[str] = Field(default_factory=list)
    sessions: list[_Session] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _gather_sessions(cls, value: object) -> object:
        """The fields first_session_dialogue, first_session_speakers and so on as one list, without empty sessions."""
        if not isinstance(value, Mapping):
            return value
        pairs = ((value.get(f"{name}_session_dialogue"), value.get(f"{name}_session_speakers")) for name in _ORDINALS)
        return {**value, "sessions": [{"dialogue": texts, "speakers": names} for texts, names in pairs if texts]}


def read(path: Path) -> Dataset:
    """One episode per record. Raises BadInput with file and line."""
    return readers.read_episodes("conversation_chronicles", path, _Episode, _episode, episodes=COUNTS)


def _episode(place: str, record: _Episode, reading: Reading) -> Episode:
    name = reading.unique(record.id)
    sessions = _sessions(place, name, record, reading)
    probes: list[Probe] = []
    golds: dict[str, tuple[Unit, ...]] = {}
    memory: tuple[Unit, ...] = ()
    for number, session in enumerate(sessions, start=1):
        if number > 1:
            kind, after = f"session {number}", sessions[number - 2].id
            probes += readers.next_turn_probes(
                session.id, session.turns, kind=kind, after=after, oddities=reading.oddities
            )
        memory += tuple(
            readers.memory_unit(f"{session.id}/m{place}", text, "", session.id, session.turns[-1].time)
            for place, text in enumerate(sentences("\n".join(record.summary[number - 1 : number])))
        )
        golds[session.id] = memory
    return Episode(name, half_of(record.id), sessions, tuple(probes), golds=golds)


def _sessions(place: str, name: str, record: _Episode, reading: Reading) -> tuple[Session, ...]:
    sessions: list[Session] = []
    start = readers.UNDATED
    user = next(iter(record.sessions[0].speakers), "")
    for number, item in enumerate(record.sessions, start=1):
        if len(item.dialogue) != len(item.speakers):
            counts = f"{len(item.dialogue)} utterances have {len(item.speakers)} speakers"
            raise BadInput(f"{place}, session {number}: {counts}; correct the file")
        if number > 1:
            span = "".join(record.time_interval[number - 1 : number]).strip().lower()
            reading.oddities["unknown spans between sessions, taken as a day"] += span not in _GAPS
            start += _GAPS.get(span, timedelta(days=1))
        utterances = zip(item.speakers, item.dialogue, strict=True)
        sessions.append(readers.build_session(f"{name}/{number}", utterances, user, start))
    return tuple(sessions)
