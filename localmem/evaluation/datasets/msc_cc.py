"""Memory sentences and a last session from MSC and Conversation Chronicles, with the replies of one baseline.

Source: made from the public files of Theanine's evaluation (talzoomanzoo/theanine-geval): the memory sentences of
sessions 1 to 5, session 5 itself, and, for each of its turns, six memories that a retrieval baseline recalled and its
reply. Licence: none is stated; the dialogues belong to the authors of the two data sets.

An episode starts with the memories of sessions 1 to 4 (ids s1-m1 and so on). Those of session 5 are the gold memory
after it and are not given. Each utterance of session 5 except the first is a probe, for both speakers, before that
session is read. There are no times: sessions are a day apart from 1970 on. `baseline` returns the shipped replies with
what was really said.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets import readers
from localmem.evaluation.datasets.readers import Reading, Record
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, half_of
from localmem.types import Unit

COUNTS = (100,)  # episodes in a file

_LAST = 5  # the session whose utterances are the probes
_KEY = re.compile(r"s(\d+)-m\d+")


class _Reply(Record):
    utter_id: str
    n_context: int = Field(ge=1)
    response: str
    retrieved_memory: list[str] = Field(default_factory=list)


class _Episode(Record):
    episode: str
    memories: dict[str, str]
    session5_context: list[str] = Field(min_length=2)
    generated_turns: list[_Reply] = Field(default_factory=list)


class Baseline(NamedTuple):
    """A shipped reply, what was really said instead, and the memories that the reply was made with."""

    id: str
    reply: str
    reference: str
    retrieved: tuple[str, ...]


def read(path: Path) -> Dataset:
    """One episode per record. Raises BadInput with file and record."""
    return readers.read_episodes("msc_cc", path, _Episode, _episode, episodes=COUNTS)


def baseline(path: Path) -> list[Baseline]:
    """The shipped replies; a reply to the last turn of a session has no reference and is left out."""
    replies: list[Baseline] = []
    for place, record in readers.read_records(path, _Episode):
        texts = [_split_speaker(place, line)[1] for line in record.session5_context]
        replies += (
            Baseline(reply.utter_id, reply.response, texts[reply.n_context], tuple(reply.retrieved_memory))
            for reply in record.generated_turns
            if reply.n_context < len(texts)
        )
    return replies


def _episode(place: str, record: _Episode, reading: Reading) -> Episode:
    name, oddities = reading.unique(record.episode), reading.oddities
    utterances = [_split_speaker(place, line) for line in record.session5_context]
    last = readers.build_session(f"{name}/{_LAST}", utterances, utterances[0][0], _day(_LAST))
    speakers = tuple(dict.fromkeys(speaker for speaker, _ in utterances))
    units = [_unit(place, name, key, text, speakers) for key, text in record.memories.items()]
    oddities["memories that do not name exactly one speaker, taken for both"] += sum(not unit.speaker for unit in units)
    kind = f"session {_LAST}"
    probes = readers.next_turn_probes(last.id, last.turns, kind=kind, after=BEFORE_ALL, oddities=oddities)
    memories = tuple(unit for unit in units if unit.session != last.id)
    golds = {last.id: tuple(unit for unit in units if unit.session == last.id)}
    return Episode(name, half_of(record.episode), (last,), probes, memories, golds)


def _split_speaker(place: str, line: str) -> tuple[str, str]:
    speaker, colon, text = line.partition(": ")
    if not colon:
        raise BadInput(f"{place}: session5_context: {line!r:.60} does not begin with a speaker and ': '; correct it")
    return speaker, text


def _unit(place: str, name: str, key: str, text: str, speakers: Sequence[str]) -> Unit:
    match = _KEY.fullmatch(key)
    if match is None:
        raise BadInput(f"{place}: memories: the id {key!r} does not have the form s1-m1; correct the file")
    number = int(match[1])
    named = [speaker for speaker in speakers if speaker.casefold() in text.casefold()]
    speaker = named[0] if len(named) == 1 else ""
    return readers.memory_unit(f"{name}/{key}", text, speaker, f"{name}/{number}", _day(number))


def _day(session: int) -> datetime:
    return readers.UNDATED + timedelta(days=session - 1)
