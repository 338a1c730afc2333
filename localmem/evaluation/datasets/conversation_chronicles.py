"""Conversation Chronicles (Jang et al., EMNLP 2023): two people of a stated relationship in five sessions, by ChatGPT.

Source: jihyoung/ConversationChronicles on the Hugging Face hub, {train,valid,test}.jsonl. Licence: CC BY 4.0.

Every session but the first is asked for utterance by utterance, of both speakers, after the session before it.
`time_interval` names spans ("A few days after") and no lengths, so a few are three, a couple two, and sessions stand at
these distances from 1970 on; a span that is not known counts as a day, and the notes say so. The first speaker of an
episode takes the user's role. `summary` tells what each session was about: its sentences so far are a session's gold
memory.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.dialogues import SAME_SPEAKER, UNDATED, Names, memory, next_probes, session
from localmem.evaluation.datasets.files import Record, file_sha256, read_records
from localmem.evaluation.episodes import Dataset, Episode, Probe, counted, differing, half_of
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

    def said(self) -> Iterator[tuple[list[str], list[str]]]:
        """The utterances and the speakers of each session that has any."""
        every = (
            (self.first_session_dialogue, self.first_session_speakers),
            (self.second_session_dialogue, self.second_session_speakers),
            (self.third_session_dialogue, self.third_session_speakers),
            (self.fourth_session_dialogue, self.fourth_session_speakers),
            (self.fifth_session_dialogue, self.fifth_session_speakers),
        )
        return (one for one in every if one[0])


def read(path: Path) -> Dataset:
    """Every record as an episode. Raises BadInput with file and line."""
    oddities: Counter[str] = Counter()
    names = Names()
    episodes = tuple(_episode(place, item, names, oddities) for place, item in read_records(path, _Episode))
    notes = (*counted(oddities), *differing("episodes", len(episodes), COUNTS))
    return Dataset("conversation_chronicles", file_sha256(path), episodes, notes)


def _episode(place: str, item: _Episode, names: Names, oddities: Counter[str]) -> Episode:
    name = names.once(item.id)
    sessions = _sessions(place, name, item, oddities)
    probes: list[Probe] = []
    golds: dict[str, tuple[Unit, ...]] = {}
    known: tuple[Unit, ...] = ()
    for number, one in enumerate(sessions, start=1):
        if number > 1:
            asked = next_probes(one.id, one.turns, kind=f"session {number}", after=sessions[number - 2].id)
            oddities[SAME_SPEAKER] += len(one.turns) - 1 - len(asked)
            probes += asked
        known += _summed_up(one, item.summary[number - 1 : number])
        golds[one.id] = known
    return Episode(name, half_of(item.id), sessions, tuple(probes), golds=golds)


def _sessions(place: str, name: str, item: _Episode, oddities: Counter[str]) -> tuple[Session, ...]:
    sessions: list[Session] = []
    start = UNDATED
    for number, (texts, speakers) in enumerate(item.said(), start=1):
        if len(texts) != len(speakers):
            where = f"{place}, session {number}"
            raise BadInput(f"{where}: {len(texts)} utterances have {len(speakers)} speakers; mend the file")
        if number > 1:
            start += _gap(item.time_interval[number - 1 : number], oddities)
        user = item.first_session_speakers[0]
        sessions.append(session(f"{name}/{number}", zip(speakers, texts, strict=True), user, start))
    return tuple(sessions)


def _gap(named: list[str], oddities: Counter[str]) -> timedelta:
    span = named[0].strip().lower() if named else ""
    oddities["spans between sessions that are not known, taken for a day"] += span not in _GAPS
    return _GAPS.get(span, timedelta(days=1))


def _summed_up(of: Session, summary: list[str]) -> tuple[Unit, ...]:
    return tuple(
        memory(f"{of.id}/m{number}", text, "", of.id, of.turns[-1].time)
        for number, text in enumerate(sentences("\n".join(summary)))
    )
