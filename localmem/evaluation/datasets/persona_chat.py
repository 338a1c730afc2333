"""Synthetic-Persona-Chat (Jandaghi et al., 2023) as SeCom uses it (appendix A.9): next utterances, personas known.

Source: google-research-datasets/Synthetic-Persona-Chat, Synthetic-Persona-Chat_{train,valid,test}.csv. Licence: CC BY
4.0. It is the expanded Persona-Chat (Zhang et al., 2018) that SeCom takes.

An episode is a conversation with the five nearest to it in the file, which are its sessions; all but the conversation's
first utterance are asked for, of both speakers. The personas of both are given memories, for SeCom shows them to the
model. There are no times: conversations stand a day apart from 1970 on. User 1 takes the user's role. SeCom draws 100
conversations at random; `--limit` takes the first utterances instead.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.dialogues import (
    SAME_SPEAKER,
    UNDATED,
    memory,
    next_probes,
    session,
    surrounding,
)
from localmem.evaluation.datasets.files import Record, checked, file_sha256, whole
from localmem.evaluation.episodes import Dataset, Episode, counted, differing, half_of
from localmem.types import Session, Unit

COUNTS = (8938, 1000, 968)  # conversations in train, valid and test
AROUND = 5  # conversations beside one's own (SeCom, appendix A.9)

_SPEAKERS = ("User 1", "User 2")
_LINE = re.compile(rf"[*\s]*({'|'.join(_SPEAKERS)})[*\s]*:[*\s]*(.*)")
_NOT_SAID = re.compile(r"[*\s]*(\[.*\])?[*\s]*")  # empty, a row of stars, or a stage direction in brackets


class _Row(Record):
    first: str = Field(alias="user 1 personas")
    second: str = Field(alias="user 2 personas")
    said: str = Field(alias="Best Generated Conversation", min_length=1)


def read(path: Path) -> Dataset:
    """Every row as an episode. Raises BadInput with file and line."""
    oddities: Counter[str] = Counter()
    rows = list(_rows(path))
    if len(rows) < 2:
        raise BadInput(f"{path} holds one conversation, and each is asked about beside others; give more of the file")
    held = [_session(place, number, row, oddities) for number, (place, row) in enumerate(rows)]
    episodes = tuple(_episode(number, row, held, oddities) for number, (_, row) in enumerate(rows))
    return Dataset(
        "persona_chat",
        file_sha256(path),
        episodes,
        (*counted(oddities), *differing("conversations", len(rows), COUNTS)),
    )


def _rows(path: Path) -> Iterator[tuple[str, _Row]]:
    lines = csv.DictReader(StringIO(whole(path), newline=""), strict=True)
    begun = 2  # the line at which a row begins; it may go on over several
    try:
        for row in lines:
            place = f"{path}, line {begun}"
            yield place, checked(place, {key: value for key, value in row.items() if key}, _Row)
            begun = lines.line_num + 1
    except csv.Error as error:
        raise BadInput(f"{path}, line {begun} is no CSV: {error}; give the data set's own file") from error
    if lines.line_num < 2:
        raise BadInput(f"{path} holds no record; give the data set's own file")


def _session(place: str, number: int, row: _Row, oddities: Counter[str]) -> Session:
    said: list[tuple[str, str]] = []
    for line in row.said.splitlines():
        match = _LINE.fullmatch(line)
        if match:
            said.append((match[1], match[2].strip()))
        elif said and not _NOT_SAID.fullmatch(line):
            oddities["lines that go on with the utterance before them"] += 1
            said[-1] = (said[-1][0], f"{said[-1][1]} {line.strip()}")
    if not said:
        raise BadInput(f"{place}: the conversation has no line 'User 1: ...'; give the data set's own file")
    return session(f"c{number + 1}", said, _SPEAKERS[0], UNDATED + timedelta(days=number))


def _episode(number: int, row: _Row, held: list[Session], oddities: Counter[str]) -> Episode:
    own = held[number]
    sessions = tuple(one for one in surrounding(held, number, AROUND) if one is not own)
    probes = next_probes(f"{own.id}/next", own.turns, kind="next utterance", after="")
    oddities[SAME_SPEAKER] += len(own.turns) - 1 - len(probes)
    return Episode(own.id, half_of(own.id), sessions, probes, tuple(_personas(own, row)))


def _personas(own: Session, row: _Row) -> Iterator[Unit]:
    for speaker, text in zip(_SPEAKERS, (row.first, row.second), strict=True):
        for number, line in enumerate(filter(None, map(str.strip, text.splitlines()))):
            yield memory(f"{own.id}/{speaker}/{number}", line, speaker, f"{own.id}/0", UNDATED)
