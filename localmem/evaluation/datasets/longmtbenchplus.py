"""Long-MT-Bench+ as SeCom publishes it (Pan et al., ICLR 2025, appendix A.7): five MT-Bench+ sessions, with answers.

Source: panzs19/Long-MT-Bench-Plus on the Hugging Face hub, as the JSONL that SeCom's own code makes of it
(conversation_id, sessions, questions, answers). Licence: MIT, as MT-Bench+. `mtbenchplus` makes the same histories out
of MT-Bench+ itself; it has the 54 questions that people wrote, the source topics of each, and no answers.

A session is a list of exchanges, each one text in which "[human]:" and "[bot]:" begin what either said; a text without
such marks is the user's. Which turns hold an answer is not in the file. There are no times: sessions stand a day apart
from 1970 on.
"""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.dialogues import UNDATED, Names, session
from localmem.evaluation.datasets.files import Record, file_sha256, read_records
from localmem.evaluation.episodes import Dataset, Episode, Probe, counted, differing, half_of

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
    """Every conversation as an episode. Raises BadInput with file and line."""
    oddities: Counter[str] = Counter()
    names = Names()
    episodes = tuple(_episode(place, item, names, oddities) for place, item in read_records(path, _Conversation))
    asked = sum(len(episode.probes) for episode in episodes)
    notes = (*differing("conversations", len(episodes), COUNTS), *differing("questions", asked, QUESTIONS))
    return Dataset("longmtbenchplus", file_sha256(path), episodes, (*counted(oddities), *notes))


def _episode(place: str, item: _Conversation, names: Names, oddities: Counter[str]) -> Episode:
    if len(item.questions) != len(item.answers):
        counts = f"{len(item.questions)} questions have {len(item.answers)} answers"
        raise BadInput(f"{place}: {counts}; give Long-MT-Bench+'s own file")
    name = names.once(item.conversation_id)
    sessions = tuple(
        session(f"{name}/{number}", _said(texts, oddities), _USER, UNDATED + timedelta(days=number))
        for number, texts in enumerate(item.sessions, start=1)
        if texts
    )
    if not sessions:
        raise BadInput(f"{place}: sessions: not one of them holds an exchange; give Long-MT-Bench+'s own file")
    probes = tuple(
        Probe(f"{name}/q{number}", question, answer, "question", None, (), ())
        for number, (question, answer) in enumerate(zip(item.questions, item.answers, strict=True))
    )
    return Episode(name, half_of(item.conversation_id), sessions, probes)


def _said(texts: Sequence[str], oddities: Counter[str]) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    for text in texts:
        before, *pieces = _MARK.split(text)
        oddities["exchanges without marks, taken for the user's words"] += not pieces
        if before.strip():
            said.append((_USER, before.strip()))
        for mark, words in zip(pieces[::2], pieces[1::2], strict=True):
            said.append((_USER if mark.lower() in ("human", "user") else _BOT, words.strip()))
    return said
