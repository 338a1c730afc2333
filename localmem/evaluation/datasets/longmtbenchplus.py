"""Long-MT-Bench+ as SeCom publishes it (Pan et al., ICLR 2025, appendix A.7): five MT-Bench+ sessions, with answers.

Source: panzs19/Long-MT-Bench-Plus on the Hugging Face hub, as the JSONL that SeCom's own code makes of it
(conversation_id, sessions, questions, answers). Licence: MIT, as MT-Bench+. `mtbenchplus` makes the same histories from
MT-Bench+ itself; it has the 54 questions that people wrote, the source topics of each, and no answers.

A session is a list of exchanges, each one text in which "[human]:" and "[bot]:" begin what either said; a text without
such marks is the user's. The file does not say which turns contain an answer. There are no times: sessions are a day
apart from 1970 on.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import UNDATED, Reading, Record, build_session, read_episodes
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of

COUNTS = (11,)  # conversations
QUESTIONS = (288,)

_USER, _BOT = "User", "Assistant"
_MARK = re.compile(r"^\s*\[?(human|user|bot|chatbot|assistant|ai|agent)\]?\s*:\s*", re.IGNORECASE | re.MULTILINE)


class _Conversation(Record):
    conversation_id: str
    sessions: list[list[str]] = Field(min_length=1)
    questions: list[str]
    answers: list[str]


def read(path: Path) -> Dataset:
    """One episode per conversation. Raises BadInput with file and line."""
    return read_episodes("longmtbenchplus", path, _Conversation, _episode, conversations=COUNTS, questions=QUESTIONS)


def _episode(place: str, record: _Conversation, reading: Reading) -> Episode:
    if len(record.questions) != len(record.answers):
        counts = f"{len(record.questions)} questions have {len(record.answers)} answers"
        raise BadInput(f"{place}: {counts}; use Long-MT-Bench+'s own file")
    name = reading.unique(record.conversation_id)
    sessions = tuple(
        build_session(f"{name}/{number}", _utterances(texts, reading), _USER, UNDATED + timedelta(days=number))
        for number, texts in enumerate(record.sessions, start=1)
        if texts
    )
    if not sessions:
        raise BadInput(f"{place}: sessions: none of them contains an exchange; use Long-MT-Bench+'s own file")
    probes = tuple(
        Probe(f"{name}/q{number}", question, answer, "question")
        for number, (question, answer) in enumerate(zip(record.questions, record.answers, strict=True))
    )
    return Episode(name, half_of(record.conversation_id), sessions, probes)


def _utterances(texts: Sequence[str], reading: Reading) -> list[tuple[str, str]]:
    utterances: list[tuple[str, str]] = []
    for text in texts:
        before, *pieces = _MARK.split(text)
        reading.oddities["exchanges without marks, taken as the user's words"] += not pieces
        if before.strip():
            utterances.append((_USER, before.strip()))
        for mark, words in zip(pieces[::2], pieces[1::2], strict=True):
            utterances.append((_USER if mark.lower() in ("human", "user") else _BOT, words.strip()))
    return utterances
