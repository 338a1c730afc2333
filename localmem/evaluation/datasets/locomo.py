"""LoCoMo (Maharana et al., ACL 2024), as published: ten conversations of two people over months, and questions.

Source: snap-research/locomo, data/locomo10.json. Licence: CC BY-NC 4.0.

A shared image is replaced by its caption, as LoCoMo's own code shows it to a model. speaker_a takes the user's role.
Questions of category 5 ask for what was never said about that person; their evidence is the misleading turn and is
included. Malformed evidence is corrected where its meaning is clear and dropped otherwise; the notes count both.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import Reading, Record, parse_record, parse_time, read_episodes
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of, sessions_with
from localmem.types import Session, Turn

# The names of the categories, by their numbers in the file (LoCoMo's evaluation code, section 4.1 of the paper).
CATEGORIES = {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": "adversarial"}

COUNTS = (10,)  # conversations in locomo10.json
QUESTIONS = (1986,)

_TIME = "%I:%M %p on %d %B, %Y"
_SESSION = re.compile(r"session_(\d+)")
_ID = re.compile(r"D:?(\d+):0*(\d+)")


class _Turn(Record):
    speaker: str
    dia_id: str
    text: str
    blip_caption: str | None = None


class _Question(Record):
    question: str
    category: str
    evidence: list[str] = Field(default_factory=list)
    answer: str = ""


class _Conversation(Record):
    sample_id: str
    conversation: dict[str, object]
    qa: list[_Question]


class _Turns(Record):
    turns: list[_Turn]


def read(path: Path) -> Dataset:
    """One episode per conversation. Raises BadInput with file and place."""
    return read_episodes("locomo", path, _Conversation, _episode, conversations=COUNTS, questions=QUESTIONS)


def _episode(place: str, record: _Conversation, reading: Reading) -> Episode:
    sessions = tuple(_sessions(place, record))
    ids = {turn.id for session in sessions for turn in session.turns}
    probes = []
    for number, question in enumerate(record.qa):
        evidence = _evidence(question, record.sample_id, ids, reading.oddities)
        probes.append(
            Probe(
                id=f"{record.sample_id}/q{number}",
                question=question.question,
                answer=question.answer,
                type=CATEGORIES.get(question.category, question.category),
                evidence=evidence,
                sessions=sessions_with(sessions, evidence),
            )
        )
    return Episode(record.sample_id, half_of(record.sample_id), sessions, tuple(probes))


def _sessions(place: str, record: _Conversation) -> Iterator[Session]:
    fields, sample = record.conversation, record.sample_id
    numbers = sorted(int(match[1]) for key in fields if (match := _SESSION.fullmatch(key)))
    if not numbers:
        raise BadInput(f"{place}: conversation has no session_1; use LoCoMo's own file")
    for number in numbers:
        key = f"session_{number}"
        where = f"{place}, {key}"
        turns = parse_record(where, {"turns": fields[key]}, _Turns).turns
        start = parse_time(str(fields.get(f"{key}_date_time")), _TIME, where)
        yield Session(
            f"{sample}/{number}",
            tuple(
                Turn(
                    f"{sample}/{turn.dia_id}",
                    "user" if turn.speaker == fields.get("speaker_a") else "assistant",
                    turn.speaker,
                    f"{turn.text} (shares an image: {turn.blip_caption})" if turn.blip_caption else turn.text,
                    start + timedelta(seconds=second),
                )
                for second, turn in enumerate(turns)
            ),
        )


def _evidence(question: _Question, sample: str, turn_ids: set[str], oddities: Counter[str]) -> tuple[str, ...]:
    """The ids of the evidence turns. A field may contain several ids, one written as D:11:26, or an unknown one."""
    ids: list[str] = []
    for field in question.evidence:
        matches = [f"D{session}:{turn}" for session, turn in _ID.findall(field)]
        oddities["evidence fields that were corrected (several ids in one, or oddly written)"] += matches != [field]
        ids += [f"{sample}/{match}" for match in matches]
    evidence = tuple(dict.fromkeys(key for key in ids if key in turn_ids))
    oddities["evidence ids without a turn, dropped"] += len(set(ids)) - len(evidence)
    oddities["questions without evidence"] += not evidence
    return evidence
