"""Multi-Session Chat (Xu et al., ACL 2022): two crowd workers who meet again up to four times, as ParlAI publishes it.

Source: msc_v0.1.tar.gz of ParlAI, files msc_dialogue/session_N/{train,valid,test}.txt, one JSON record per line.
Licence: ParlAI is MIT; none is stated for the data alone, and Theanine treats them as academic, non-commercial.

A record is an episode: `previous_dialogs` are its sessions. Each utterance of `dialog`, the session N, is a probe, for
both speakers as in ParlAI; that session is not part of the episode, since no probe follows it. `time_num` and
`time_unit` of a previous dialogue are the gap to the next one, so sessions keep their distances, starting in 1970; an
unknown unit counts as a day, and the notes count it. Speaker 1, who opens each session, takes the user's role. What is
known about the speakers by then (`personas`, else `init_personas`) is the gold memory of the last previous session.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import AliasPath, Field

from localmem.errors import BadInput
from localmem.evaluation.datasets import readers
from localmem.evaluation.datasets.readers import Reading, Record
from localmem.evaluation.episodes import Dataset, Episode, half_of
from localmem.types import Session, Unit

# Episodes in a file: session 5 has 500 (valid) and 501 (test), as have sessions 2 to 4, whose train files hold 4,000,
# 4,000 and 1,001 (Xu et al., Table 2; LLM-Rsum, Table 1).
COUNTS = (500, 501, 1001, 4000)

_SPEAKERS = ("Speaker 1", "Speaker 2")
_GAPS: Mapping[str, timedelta] = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}


class _Utterance(Record):
    text: str
    id: str | None = None


class _PreviousDialog(Record):
    dialog: list[_Utterance] = Field(min_length=1)
    time_num: float = 1
    time_unit: str = "days"


class _Episode(Record):
    id: str = Field(validation_alias=AliasPath("metadata", "initial_data_id"))
    previous_dialogs: list[_PreviousDialog] = Field(min_length=1)
    dialog: list[_Utterance]
    personas: list[list[str]] = Field(default_factory=list)
    init_personas: list[list[str]] = Field(default_factory=list)


def read(path: Path) -> Dataset:
    """One episode per record. Raises BadInput with file and line."""
    return readers.read_episodes("msc", path, _Episode, _episode, episodes=COUNTS)


def _episode(place: str, record: _Episode, reading: Reading) -> Episode:
    name = reading.unique(record.id)
    sessions: list[Session] = []
    start = readers.UNDATED
    for number, previous in enumerate(record.previous_dialogs, start=1):
        sessions.append(_session(place, f"{name}/{number}", previous.dialog, start))
        unit = previous.time_unit.strip().lower().removesuffix("s")
        reading.oddities["gaps in an unknown unit, taken as days"] += unit not in _GAPS
        start += previous.time_num * _GAPS.get(unit, _GAPS["day"])
    last = sessions[-1]
    current = _session(place, f"{name}/{len(sessions) + 1}", record.dialog, start)
    kind = f"session {len(sessions) + 1}"
    probes = readers.next_turn_probes(current.id, current.turns, kind=kind, after=last.id, oddities=reading.oddities)
    golds = {last.id: _gold_memory(last.id, record, last.turns[-1].time)}
    return Episode(name, half_of(record.id), tuple(sessions), probes, golds=golds)


def _session(place: str, name: str, utterances: Sequence[_Utterance], start: datetime) -> Session:
    speakers = [utterance.id or _SPEAKERS[number % 2] for number, utterance in enumerate(utterances)]
    unknown = set(speakers).difference(_SPEAKERS)
    if unknown:
        raise BadInput(f"{place}: the speaker {unknown.pop()!r} is neither Speaker 1 nor 2; use MSC's own file")
    texts = (utterance.text for utterance in utterances)
    return readers.build_session(name, zip(speakers, texts, strict=True), _SPEAKERS[0], start)


def _gold_memory(session: str, record: _Episode, time: datetime) -> tuple[Unit, ...]:
    personas = record.personas if any(record.personas) else record.init_personas
    return tuple(
        readers.memory_unit(f"{session}/{speaker}/{number}", text, speaker, session, time)
        for speaker, texts in zip(_SPEAKERS, personas, strict=False)
        for number, text in enumerate(texts)
    )
