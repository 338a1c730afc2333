"""HaluMem (Chen et al., 2025): a user's sessions of a year, with the memories to extract, updates and questions.

Source: IAAR-Shanghai/HaluMem on the Hugging Face hub, HaluMem-Medium.jsonl and HaluMem-Long.jsonl. Licence: CC BY-NC-ND
4.0 (evaluate only).

A user is an episode. The gold memory after a session holds all memory points so far, without those that an update
replaced and without those marked as interference, which only the assistant said. A question comes after its session;
its evidence names memories and no turns, so it counts by the sessions in which these arose.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field

from localmem.evaluation.datasets.readers import Reading, Record, memory_unit, parse_time, read_episodes
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of
from localmem.types import Role, Session, Turn, Unit

COUNTS = (20,)  # users
QUESTIONS = (3467,)

_TIME = "%b %d, %Y, %H:%M:%S"


class _Message(Record):
    role: str
    content: str
    timestamp: str


class _Memory(Record):
    memory_content: str
    memory_source: str = ""
    is_update: str = "False"
    original_memories: list[str] = Field(default_factory=list)


class _Evidence(Record):
    memory_content: str


class _Question(Record):
    question: str
    answer: str
    question_type: str
    evidence: list[_Evidence] = Field(default_factory=list)


class _Session(Record):
    dialogue: list[_Message] = Field(min_length=1)
    memory_points: list[_Memory] = Field(default_factory=list)
    questions: list[_Question] = Field(default_factory=list)


class _User(Record):
    uuid: str
    sessions: list[_Session] = Field(min_length=1)


def read(path: Path) -> Dataset:
    """One episode per user. Raises BadInput with file and line."""
    return read_episodes("halumem", path, _User, _episode, users=COUNTS, questions=QUESTIONS)


def _episode(place: str, record: _User, reading: Reading) -> Episode:
    sessions: list[Session] = []
    probes: list[Probe] = []
    golds: dict[str, tuple[Unit, ...]] = {}
    memories: dict[str, Unit] = {}
    origins: dict[str, str] = {}  # memory -> the session in which it arose
    for number, item in enumerate(record.sessions, start=1):
        session = _session(place, f"{record.uuid}/{number}", item.dialogue)
        sessions.append(session)
        time = session.turns[-1].time
        for point in item.memory_points:
            if point.memory_source == "interference":
                reading.oddities["memory points that only the assistant said, left out"] += 1
                continue
            for text in point.original_memories if point.is_update == "True" else ():
                memories.pop(text, None)
            text = point.memory_content
            memories[text] = memory_unit(f"{session.id}/m{len(origins)}", text, "", session.id, time)
            origins[text] = session.id
        golds[session.id] = tuple(memories.values())
        probes += _probes(session, item.questions, origins)
    return Episode(record.uuid, half_of(record.uuid), tuple(sessions), tuple(probes), golds=golds)


def _session(place: str, name: str, dialogue: Sequence[_Message]) -> Session:
    turns = []
    for number, message in enumerate(dialogue):
        time: datetime = parse_time(message.timestamp, _TIME, place).astimezone(UTC)
        side: tuple[Role, str] = ("user", "User") if message.role == "user" else ("assistant", "Assistant")
        turns.append(Turn(f"{name}.{number}", *side, message.content, time))
    return Session(name, tuple(turns))


def _probes(session: Session, questions: Sequence[_Question], origins: dict[str, str]) -> list[Probe]:
    probes = []
    for number, question in enumerate(questions):
        sources = (origins.get(evidence.memory_content) for evidence in question.evidence)
        probes.append(
            Probe(
                id=f"{session.id}/q{number}",
                question=question.question,
                answer=question.answer,
                type=question.question_type,
                sessions=tuple(dict.fromkeys(filter(None, sources))),
                after=session.id,
            )
        )
    return probes
