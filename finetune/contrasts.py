"""Contrasts: short groups of messages that resemble one another, and questions that one or two sentences answer.

A folder holds JSON files, each a list of groups: `messages` (`who` says it, `day`, `sentences`) and `questions`
(`text`, the sentences that are its `answers`, those that are `outdated`, and the `words` of an answer that are enough).
A question without answers asks for something near to what was said. Written for localmem. Does not depend on any model.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, time
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field

from localmem import files
from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import CURE, Record, parse_record, parse_value
from localmem.types import Session, Turn

_NOON = time(12, tzinfo=UTC)
_SEPARATOR = "\n"  # many sentences have no full stop


class _Message(Record):
    who: Literal["user", "assistant"]
    day: date
    sentences: list[str] = Field(min_length=1)


class ContrastQuestion(Record):
    """A question as it stands in the file."""

    text: str
    answers: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    words: str = ""


class _Group(Record):
    messages: list[_Message] = Field(min_length=1)
    questions: list[ContrastQuestion] = Field(min_length=1)


class Contrast(NamedTuple):
    """A group by its file and number. `turn_of` is the id of the turn that holds a sentence."""

    id: str
    sessions: tuple[Session, ...]
    questions: tuple[ContrastQuestion, ...]
    turn_of: Mapping[str, str]


def holds_contrasts(folder: Path) -> bool:
    """Whether the folder's files are lists, which those of people are not."""
    first = min(folder.glob("*.json"), default=None)
    return first is not None and files.read_text(first, CURE).lstrip().startswith("[")


def read_contrasts(folder: Path) -> Iterator[Contrast]:
    """The groups of a folder in the order of its files, a session a day. Raises BadInput with the place."""
    for path in sorted(folder.glob("*.json")):
        groups = parse_value(str(path), files.read_text(path, CURE))
        if not isinstance(groups, list):
            raise BadInput(f"{path} is no list of groups, as other files here are; {CURE}")
        for number, value in enumerate(groups, start=1):
            place = f"{path}, group {number}"
            yield _build(place, f"{path.stem}/{number}", parse_record(place, value, _Group))


def _build(place: str, name: str, group: _Group) -> Contrast:
    sessions, turn_of = [], dict[str, str]()
    for day, messages in groupby(sorted(group.messages, key=lambda message: message.day), lambda message: message.day):
        session, turns = f"{name}/{day}", list[Turn]()
        for number, message in enumerate(messages):
            turn = Turn(
                f"{session}.{number}",
                message.who,
                message.who.capitalize(),
                _SEPARATOR.join(message.sentences),
                datetime.combine(day, _NOON),
            )
            turns.append(turn)
            turn_of |= dict.fromkeys(message.sentences, turn.id)
        sessions.append(Session(session, tuple(turns)))
    for question in group.questions:
        if unknown := [text for text in (*question.answers, *question.outdated) if text not in turn_of]:
            raise BadInput(f"{place}: no message holds the sentence {unknown[0]!r}; copy it as it stands there")
    return Contrast(name, tuple(sessions), tuple(group.questions), turn_of)
