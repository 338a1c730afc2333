"""Synthetic-Persona-Chat (Jandaghi et al., 2023) as SeCom uses it (appendix A.9): next utterances, personas known.

Source: google-research-datasets/Synthetic-Persona-Chat, Synthetic-Persona-Chat_{train,valid,test}.csv. Licence: CC BY
4.0. It is the expanded Persona-Chat (Zhang et al., 2018) that SeCom takes.

The sessions of an episode are the five conversations nearest to its own in the file; each utterance of its own
conversation except the first is a probe, for both speakers. The personas of both are given memories, since SeCom shows
them to the model. There are no times: conversations are a day apart from 1970 on. User 1 takes the user's role. SeCom
draws 100 conversations at random; `--limit` takes the first utterances instead.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path

from pydantic import Field

from localmem import files
from localmem.errors import BadInput
from localmem.evaluation.datasets import readers
from localmem.evaluation.datasets.readers import Reading, Record
from localmem.evaluation.episodes import Dataset, Episode, half_of
from localmem.types import Session, Unit

COUNTS = (8938, 1000, 968)  # conversations in train, valid and test
NEIGHBOURS = 5  # conversations besides the episode's own (SeCom, appendix A.9)

_SPEAKERS = ("User 1", "User 2")
_LINE = re.compile(rf"[*\s]*({'|'.join(_SPEAKERS)})[*\s]*:[*\s]*(.*)")
_NO_WORDS = re.compile(r"[*\s]*(\[.*\])?[*\s]*")  # empty, a row of stars, or a stage direction in brackets


class _Row(Record):
    first: str = Field(alias="user 1 personas")
    second: str = Field(alias="user 2 personas")
    conversation: str = Field(alias="Best Generated Conversation", min_length=1)


def read(path: Path) -> Dataset:
    """One episode per row. Raises BadInput with file and line."""
    reading = Reading()
    conversations: list[tuple[_Row, Session]] = []
    for place, fields in _rows(path):
        with reading.skipping():
            reading.records += 1
            row = readers.parse_record(place, fields, _Row)
            conversations.append((row, _session(place, reading.records, row, reading.oddities)))
    reading.finish()
    if len(conversations) < 2:
        raise BadInput(f"{path} contains one conversation, and an episode needs others as well; use more of the file")
    sessions = [session for _, session in conversations]
    episodes = [_episode(n, row, sessions, reading.oddities) for n, (row, _) in enumerate(conversations)]
    note = readers.size_note("conversations", reading.records, COUNTS)
    return readers.build_dataset("persona_chat", path, episodes, reading.oddities, note)


def _rows(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    with files.reading(path, readers.CURE):
        text = path.read_bytes().decode("utf-8-sig")  # newlines as they are: a quoted field contains some
    lines = csv.DictReader(StringIO(text, newline=""), strict=True)
    first = 2  # the line at which a row begins; a row may span several
    try:
        for row in lines:
            place = f"{path}, line {first}"
            yield place, {key: value for key, value in row.items() if key}
            first = lines.line_num + 1
    except csv.Error as error:
        raise BadInput(f"{path}, line {first} is not CSV: {error}; {readers.CURE}") from error
    if lines.line_num < 2:
        raise BadInput(f"{path} contains no record; {readers.CURE}")


def _session(place: str, number: int, row: _Row, oddities: Counter[str]) -> Session:
    utterances: list[tuple[str, str]] = []
    for line in row.conversation.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            utterances.append((match[1], match[2].strip()))
        elif utterances and not _NO_WORDS.fullmatch(line):
            oddities["lines that continue the previous utterance"] += 1
            speaker, text = utterances[-1]
            utterances[-1] = (speaker, f"{text} {line.strip()}")
    if not utterances:
        raise BadInput(f"{place}: the conversation has no line 'User 1: ...'; {readers.CURE}")
    return readers.build_session(f"c{number}", utterances, _SPEAKERS[0], readers.UNDATED + timedelta(days=number - 1))


def _episode(number: int, row: _Row, sessions: list[Session], oddities: Counter[str]) -> Episode:
    own = sessions[number]
    others = tuple(session for session in readers.nearest_sessions(sessions, number, NEIGHBOURS) if session is not own)
    probes = readers.next_turn_probes(f"{own.id}/next", own.turns, kind="next utterance", after="", oddities=oddities)
    return Episode(own.id, half_of(own.id), others, probes, tuple(_personas(own, row)))


def _personas(own: Session, row: _Row) -> Iterator[Unit]:
    for speaker, text in zip(_SPEAKERS, (row.first, row.second), strict=True):
        for number, line in enumerate(filter(None, map(str.strip, text.splitlines()))):
            yield readers.memory_unit(f"{own.id}/{speaker}/{number}", line, speaker, f"{own.id}/0", readers.UNDATED)
