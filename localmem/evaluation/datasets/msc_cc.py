"""Memory sentences and a last session out of MSC and Conversation Chronicles, with what one baseline replied.

Source: made from the public files of Theanine's evaluation (talzoomanzoo/theanine-geval): the memory sentences of
sessions 1 to 5, session 5 itself, and, for each of its turns, six memories that a retrieval baseline showed and its
reply. Licence: none is stated; the dialogues belong to the authors of the two sets.

An episode begins with the memories of sessions 1 to 4 (ids s1-m1 and so on). Those of session 5 are what a memory
should hold once it is over: they are its gold memory and are not given. Each utterance of session 5 but the first is
asked for, of both speakers, before that session is read. There are no times: sessions stand a day apart from 1970 on.
`baseline` gives the shipped replies beside what was really said.
"""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.dialogues import SAME_SPEAKER, UNDATED, Names, memory, next_probes, session
from localmem.evaluation.datasets.files import Record, file_sha256, read_records
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, counted, differing, half_of
from localmem.types import Unit

COUNTS = (100,)  # episodes in a file

_LAST = 5  # the session that is asked for
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
    """Every record as an episode. Raises BadInput with file and record."""
    oddities: Counter[str] = Counter()
    names = Names()
    episodes = tuple(_episode(place, item, names, oddities) for place, item in read_records(path, _Episode))
    return Dataset(
        "msc_cc", file_sha256(path), episodes, (*counted(oddities), *differing("episodes", len(episodes), COUNTS))
    )


def baseline(path: Path) -> list[Baseline]:
    """The shipped replies; one to the last turn of a session has nothing to be compared with and is left out."""
    found: list[Baseline] = []
    for place, item in read_records(path, _Episode):
        said = [_said(place, line)[1] for line in item.session5_context]
        found += (
            Baseline(one.utter_id, one.response, said[one.n_context], tuple(one.retrieved_memory))
            for one in item.generated_turns
            if one.n_context < len(said)
        )
    return found


def _episode(place: str, item: _Episode, names: Names, oddities: Counter[str]) -> Episode:
    name = names.once(item.episode)
    said = [_said(place, line) for line in item.session5_context]
    last = session(f"{name}/{_LAST}", said, said[0][0], _day(_LAST))
    speakers = tuple(dict.fromkeys(speaker for speaker, _ in said))
    units = [_unit(place, name, key, text, speakers) for key, text in item.memories.items()]
    oddities["memories that name not one of the two speakers, taken for both"] += sum(not one.speaker for one in units)
    probes = next_probes(last.id, last.turns, kind=f"session {_LAST}", after=BEFORE_ALL)
    oddities[SAME_SPEAKER] += len(said) - 1 - len(probes)
    return Episode(
        id=name,
        half=half_of(item.episode),
        sessions=(last,),
        probes=probes,
        memories=tuple(one for one in units if one.session != last.id),
        golds={last.id: tuple(one for one in units if one.session == last.id)},
    )


def _said(place: str, line: str) -> tuple[str, str]:
    speaker, colon, text = line.partition(": ")
    if not colon:
        raise BadInput(f"{place}: session5_context: {line!r:.60} does not begin with a speaker and ': '; mend the file")
    return speaker, text


def _unit(place: str, name: str, key: str, text: str, speakers: Sequence[str]) -> Unit:
    match = _KEY.fullmatch(key)
    if match is None:
        raise BadInput(f"{place}: memories: the id {key!r} is not written like s1-m1; mend the file")
    number = int(match[1])
    named = [one for one in speakers if one.casefold() in text.casefold()]
    about = named[0] if len(named) == 1 else ""
    return memory(f"{name}/{key}", text, about, f"{name}/{number}", _day(number))


def _day(session: int) -> datetime:
    return UNDATED + timedelta(days=session - 1)
