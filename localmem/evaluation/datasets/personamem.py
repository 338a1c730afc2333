"""PersonaMem (Jiang et al., COLM 2025): which of four replies suits a user whose preferences change over many sessions?

Source: bowen-upenn/PersonaMem on the Hugging Face hub: questions_32k.csv (128k, 1M), with shared_contexts_32k.jsonl in
the same folder. Licence: MIT.

A shared context is an episode. A system message, which states the persona, begins a session and is its first turn, as
the user's; one that only repeats the previous one is left out. A question comes after the message that
`end_index_in_shared_context` names, so a session is also split there. The four replies follow the question's words; the
gold answer is the right one with its letter. There are no times: sessions are a day apart from 1970 on.
"""

import csv
import re
from ast import literal_eval
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

from pydantic import ConfigDict

from localmem.errors import BadInput
from localmem.evaluation.datasets import readers
from localmem.evaluation.datasets.readers import UNDATED, Reading, Record, build_session, read_records
from localmem.evaluation.episodes import BEFORE_ALL, Dataset, Episode, Probe, half_of
from localmem.files import read_text
from localmem.types import Session

_USER, _BOT = "User", "Assistant"
_ROLE = re.compile(r"^(?:User|Assistant|Side_Note): ")
_CHOOSE = "Which of these replies suits me best? Answer with its letter."


class _Message(Record):
    role: str
    content: str


class _Question(Record):
    question_id: str
    question_type: str
    user_question_or_message: str
    correct_answer: str
    all_options: str
    shared_context_id: str
    end_index_in_shared_context: int


class _Context(Record):
    messages: dict[str, list[_Message]]


class _Line(Record):
    model_config = ConfigDict(extra="allow")


def read(path: Path) -> Dataset:
    """One episode per shared context. Raises BadInput with file and line."""
    reading = Reading()
    questions: defaultdict[str, list[_Question]] = defaultdict(list)
    for number, row in enumerate(csv.DictReader(read_text(path, readers.CURE).splitlines(keepends=True)), start=1):
        reading.records += 1
        with reading.skipping():
            question = readers.parse_record(f"{path}, record {number}", row, _Question)
            questions[question.shared_context_id].append(question)
    contexts = path.with_name(path.name.replace("questions", "shared_contexts")).with_suffix(".jsonl")
    episodes: list[Episode] = []
    for place, line in read_records(contexts, _Line, reading):
        with reading.skipping():
            context = readers.parse_record(place, {"messages": line.model_extra}, _Context)
            episodes += (_episode(place, name, own, questions[name]) for name, own in context.messages.items())
    reading.finish()
    if not questions:
        raise BadInput(f"{path} contains no record; {readers.CURE}")
    with_probes = [episode for episode in episodes if episode.probes]
    return readers.build_dataset("personamem", path, with_probes, reading.oddities)


def _episode(place: str, name: str, messages: Sequence[_Message], questions: Sequence[_Question]) -> Episode:
    ends = {question.end_index_in_shared_context for question in questions}
    starts = [index for index, message in enumerate(messages) if index in ends or message.role == "system"]
    sessions: dict[int, Session] = {}  # by the index after their last message
    for start, end in zip([0, *starts], [*starts, len(messages)], strict=True):
        earlier = messages[start - 1 :: -1] if start else []
        if utterances := list(_utterances(messages[start:end], earlier)):
            number = len(sessions) + 1
            time = UNDATED + timedelta(days=number)
            sessions[end] = build_session(f"{name}/{number}", utterances, _USER, time)
    probes = tuple(_probe(place, question, sessions) for question in questions)
    return Episode(name, half_of(name), tuple(sessions.values()), probes)


def _utterances(messages: Sequence[_Message], before: Sequence[_Message]) -> Iterator[tuple[str, str]]:
    persona = next((message.content for message in before if message.role == "system"), None)
    for message in messages:
        if message.role != "system" or message.content != persona:
            text = _ROLE.sub("", message.content)
            yield _BOT if message.role == "assistant" else _USER, text


def _probe(place: str, question: _Question, sessions: dict[int, Session]) -> Probe:
    try:
        options = [str(option) for option in literal_eval(question.all_options)]
    except (ValueError, SyntaxError) as error:
        raise BadInput(f"{place}: {question.question_id}: all_options is no list; use PersonaMem's file") from error
    letter = question.correct_answer.strip()
    after = [session.id for end, session in sessions.items() if end <= question.end_index_in_shared_context]
    return Probe(
        id=question.question_id,
        question="\n".join([question.user_question_or_message, _CHOOSE, *options]),
        answer=next((option for option in options if option.startswith(letter)), letter),
        type=question.question_type,
        after=after[-1] if after else BEFORE_ALL,
    )
