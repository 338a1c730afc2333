"""BEAM (Tavakoli et al., 2025): a user's chats of 100 thousand to a million tokens, with questions of ten abilities.

Source: Mohammadta/BEAM on the Hugging Face hub, splits 100K, 500K and 1M, as JSON lines (`scripts/fetch_data.py`
converts the published tables). Licence: CC BY-SA 4.0.

A conversation is an episode and each of its batches a session, dated by its `time_anchor`; a batch without one comes a
day after the previous one. The marks "->-> 1,2" at the end of the user's messages are removed. The fields of a gold
answer differ by ability; `source_chat_ids` are the evidence. BEAM itself scores with a rubric, which is not read.
"""

import re
from ast import literal_eval
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import UNDATED, Reading, Record, parse_record, parse_time, read_episodes
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of, sessions_with
from localmem.types import Role, Session, Turn

COUNTS = (20, 35)  # conversations of 100K, and of 500K and 1M

_TIME = "%B-%d-%Y"
_MARK = re.compile(r"\s*->->[\s\d,]*$")
_ANSWERS = ("answer", "ideal_response", "ideal_answer", "ideal_summary", "expected_compliance")


class _Message(Record):
    role: str
    content: str
    id: int
    time_anchor: str | None = None


class _Conversation(Record):
    conversation_id: str
    chat: list[list[_Message]] = Field(min_length=1)
    probing_questions: str


class _Question(Record):
    question: str
    answer: str = ""
    ideal_response: str = ""
    ideal_answer: str = ""
    ideal_summary: str = ""
    expected_compliance: str = ""
    source_chat_ids: list[int] | dict[str, list[int]] = Field(default_factory=list)


class _Questions(Record):
    questions: dict[str, list[_Question]]


def read(path: Path) -> Dataset:
    """One episode per conversation. Raises BadInput with file and record."""
    return read_episodes("beam", path, _Conversation, _episode, conversations=COUNTS)


def _episode(place: str, record: _Conversation, reading: Reading) -> Episode:
    name = reading.unique(record.conversation_id)
    sessions = tuple(_sessions(place, name, record.chat))
    ids = {turn.id for session in sessions for turn in session.turns}
    try:
        value = literal_eval(record.probing_questions)  # a Python literal, as published
    except (ValueError, SyntaxError) as error:
        raise BadInput(f"{place}: probing_questions is not a Python literal; use BEAM's own file") from error
    groups = parse_record(place, {"questions": value}, _Questions).questions
    probes = []
    for ability, questions in groups.items():
        for number, question in enumerate(questions):
            sources = question.source_chat_ids
            numbers = chain.from_iterable(sources.values()) if isinstance(sources, Mapping) else sources
            evidence = tuple(key for key in dict.fromkeys(f"{name}/{source}" for source in numbers) if key in ids)
            reading.oddities["questions without evidence"] += not evidence
            probes.append(
                Probe(
                    id=f"{name}/{ability}-{number}",
                    question=question.question,
                    answer=next(filter(None, (getattr(question, field) for field in _ANSWERS)), ""),
                    type=ability.replace("_", " "),
                    evidence=evidence,
                    sessions=sessions_with(sessions, evidence),
                )
            )
    return Episode(name, half_of(record.conversation_id), sessions, tuple(probes))


def _sessions(place: str, name: str, batches: list[list[_Message]]) -> Iterator[Session]:
    time = UNDATED
    for number, batch in enumerate(filter(None, batches), start=1):
        anchor = next((message.time_anchor for message in batch if message.time_anchor), None)
        time = parse_time(anchor, _TIME, place) if anchor else time + timedelta(days=1)
        yield Session(f"{name}/batch-{number}", tuple(_turns(name, batch, time)))


def _turns(name: str, batch: list[_Message], time: datetime) -> Iterator[Turn]:
    for second, message in enumerate(batch):
        side: tuple[Role, str] = ("user", "User") if message.role == "user" else ("assistant", "Assistant")
        text = _MARK.sub("", message.content)
        yield Turn(f"{name}/{message.id}", *side, text, time + timedelta(seconds=second))
