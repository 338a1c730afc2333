"""Conversation Chronicles (Jang et al., EMNLP 2023): two people of a stated relationship in five sessions, by ChatGPT.

Source: jihyoung/ConversationChronicles on the Hugging Face hub, {train,valid,test}.jsonl. Licence: CC BY 4.0.

Each utterance of every session except the first is a probe, for both speakers, after the previous session.
`time_interval` names spans without lengths ("A few days after"): a few count as three, a couple as two, and sessions
keep these distances from 1970 on; an unknown span counts as a day, and the notes count it. The first speaker of an
episode takes the user's role. `summary` says what each session was about: its sentences so far are a session's gold
memory.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.dialogues import (
    SAME_SPEAKER,
    UNDATED,
    UniqueNames,
    build_session,
    memory_unit,
    next_turn_probes,
)
from localmem.evaluation.datasets.files import Record, build_dataset, read_records, size_note
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of
from localmem.text.parse import sentences
from localmem.types import Session, Unit

COUNTS = (160_000, 20_000)  # episodes in train, and in valid and test (Jang et al., section 3.4)

_GAPS: Mapping[str, timedelta] = {
    "a few hours after": timedelta(hours=3),
    "a few days after": timedelta(days=3),
    "a few weeks after": timedelta(weeks=3),
    "a few months after": timedelta(days=90),
    "a couple of years after": timedelta(days=730),
}


class _Episode(Record):
    id: str = Field(alias="dataID")
    time_interval: list[str]
    summary: list[str] = Field(default_factory=list)
    first_session_dialogue: list[str] = Field(min_length=1)
    first_session_speakers: list[str]
    second_session_dialogue: list[str] = Field(default_factory=list)
    second_session_speakers: list[str] = Field(default_factory=list)
    third_session_dialogue: list[str] = Field(default_factory=list)
    third_session_speakers: list[str] = Field(default_factory=list)
    fourth_session_dialogue: list[str] = Field(default_factory=list)
    fourth_session_speakers: list[str] = Field(default_factory=list)
    fifth_session_dialogue: list[str] = Field(default_factory=list)
    fifth_session_speakers: list[str] = Field(default_factory=list)

    def sessions(self) -> list[tuple[list[str], list[str]]]:
        """The utterances and the speakers of each session that has any."""
        pairs = [
            (self.first_session_dialogue, self.first_session_speakers),
            (self.second_session_dialogue, self.second_session_speakers),
            (self.third_session_dialogue, self.third_session_speakers),
            (self.fourth_session_dialogue, self.fourth_session_speakers),
            (self.fifth_session_dialogue, self.fifth_session_speakers),
        ]
        return [pair for pair in pairs if pair[0]]


def read(path: Path) -> Dataset:
    """One episode per record. Raises BadInput with file and line."""
    oddities: Counter[str] = Counter()
    names = UniqueNames()
    episodes = [_episode(place, record, names, oddities) for place, record in read_records(path, _Episode)]
    note = size_note("episodes", len(episodes), COUNTS)
    return build_dataset("conversation_chronicles", path, episodes, oddities, note)


def _episode(place: str, record: _Episode, names: UniqueNames, oddities: Counter[str]) -> Episode:
    name = names.add(record.id)
    sessions = _sessions(place, name, record, oddities)
    probes: list[Probe] = []
    golds: dict[str, tuple[Unit, ...]] = {}
    memory: tuple[Unit, ...] = ()
    for number, session in enumerate(sessions, start=1):
        if number > 1:
            after = sessions[number - 2].id
            session_probes = next_turn_probes(session.id, session.turns, kind=f"session {number}", after=after)
            oddities[SAME_SPEAKER] += len(session.turns) - 1 - len(session_probes)
            probes += session_probes
        memory += _summary_units(session, record.summary[number - 1 : number])
        golds[session.id] = memory
    return Episode(name, half_of(record.id), sessions, tuple(probes), golds=golds)


def _sessions(place: str, name: str, record: _Episode, oddities: Counter[str]) -> tuple[Session, ...]:
    sessions: list[Session] = []
    start = UNDATED
    for number, (texts, speakers) in enumerate(record.sessions(), start=1):
        if len(texts) != len(speakers):
            counts = f"{len(texts)} utterances have {len(speakers)} speakers"
            raise BadInput(f"{place}, session {number}: {counts}; correct the file")
        if number > 1:
            start += _gap(record.time_interval[number - 1 : number], oddities)
        user = record.first_session_speakers[0]
        sessions.append(build_session(f"{name}/{number}", zip(speakers, texts, strict=True), user, start))
    return tuple(sessions)


def _gap(interval: list[str], oddities: Counter[str]) -> timedelta:
    span = interval[0].strip().lower() if interval else ""
    oddities["unknown spans between sessions, taken as a day"] += span not in _GAPS
    return _GAPS.get(span, timedelta(days=1))


def _summary_units(session: Session, summary: list[str]) -> tuple[Unit, ...]:
    return tuple(
        memory_unit(f"{session.id}/m{number}", text, "", session.id, session.turns[-1].time)
        for number, text in enumerate(sentences("\n".join(summary)))
    )
