"""A user's own logs with questions about them, as JSONL. The source and the licence are the user's own.

A line is a session or a probe. A session is what `localmem remember` reads: {"id": "...", "time": "2026-03-02T18:05Z",
"turns": [{"role": "user", "text": "..."}, ...]}, each turn with a `time` and a `speaker` of its own if it has them. A
probe is {"question": "...", "answer": "..."}, and may have:

    id         its name; else q1, q2 and so on
    answers    further answers that are as right: a list
    type       the kind of question, for a report by kinds
    time       when it is asked
    after      the id of the session after which it is asked; else after the last one
    sessions   ids of the sessions in which the answer stands: a list
    evidence   ids of the turns in which it stands: the id of the session, a full stop, and the turn's place from 0
    dialogue   turns that come just before the question, written as a session's
    kind       "next" where the answer is the next thing to say, and "question" where none is given

`user` in any line puts it into the episode of that name; lines without one are of one user. Sessions are put in the
order of their times; probes keep the order of the file.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.files import Record, checked, file_sha256, lines, parsed
from localmem.evaluation.episodes import Dataset, Episode, Kind, Probe, counted, half_of, sessions_of
from localmem.store.conversation_files import Names, Time, read_line
from localmem.types import Session, Turn

_DEFAULT = "user"  # the episode of lines that name none


class _User(Record):
    user: str = Field(default=_DEFAULT, min_length=1)


class _Probe(_User):
    question: str = Field(min_length=1)
    answer: str = ""
    answers: list[str] = Field(default_factory=list)
    id: str | None = None
    type: str = "question"
    time: Time | None = None
    after: str = ""
    sessions: list[str] = Field(default_factory=list)
    evidence: list[str] = Field(default_factory=list)
    dialogue: list[dict[str, object]] = Field(default_factory=list)
    kind: Kind = "question"


class _Held:
    """What was read of one user so far."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.probes: list[tuple[str, _Probe]] = []


def read(path: Path) -> Dataset:
    """An episode a user. Raises BadInput with file and line."""
    held: dict[str, _Held] = {}
    for place, text in lines(path):
        value = parsed(place, text)
        user = held.setdefault(checked(place, value, _User).user, _Held())
        if isinstance(value, Mapping) and "question" in value:
            user.probes.append((place, checked(place, value, _Probe)))
            continue
        session = read_line(text, place, Names())
        if session.id in user.sessions:
            raise BadInput(f"{place}: there is a session {session.id!r} already; give each an id of its own")
        user.sessions[session.id] = session
    if not held:
        raise BadInput(f"{path} holds no record; a line of it must be a session with its turns, or a probe")
    oddities: Counter[str] = Counter()
    episodes = tuple(_episode(path, name, user, oddities) for name, user in held.items())
    return Dataset("jsonl", file_sha256(path), episodes, counted(oddities))


def _episode(path: Path, name: str, held: _Held, oddities: Counter[str]) -> Episode:
    if not held.sessions:
        raise BadInput(f"{path}: {name!r} has probes and no session; add the sessions that they are about")
    sessions = tuple(sorted(held.sessions.values(), key=lambda session: session.turns[0].time))
    probes = tuple(_probe(place, number, item, sessions) for number, (place, item) in enumerate(held.probes, start=1))
    if len({probe.id for probe in probes}) < len(probes):
        raise BadInput(f"{path}: two probes of {name!r} have one id; give each an id of its own")
    oddities["probes that name no evidence"] += sum(not (one.evidence or one.sessions) for one in probes)
    return Episode(name, half_of(name), sessions, probes)


def _probe(place: str, number: int, item: _Probe, sessions: tuple[Session, ...]) -> Probe:
    name = item.id or f"q{number}"
    evidence = tuple(item.evidence)
    known = {session.id for session in sessions} | {turn.id for one in sessions for turn in one.turns}
    for key in (*evidence, *item.sessions, *filter(None, [item.after])):
        if key not in known:
            raise BadInput(f"{place}: there is no session or turn {key!r}; name one that the file holds")
    dialogue = _dialogue(place, name, item, sessions)
    return Probe(
        id=name,
        question=item.question,
        answer=item.answer,
        type=item.type,
        time=item.time,
        evidence=evidence,
        sessions=tuple(item.sessions) or sessions_of(sessions, evidence),
        dialogue=dialogue,
        kind=item.kind,
        after=item.after,
        others=tuple(item.answers),
    )


def _dialogue(place: str, name: str, item: _Probe, sessions: tuple[Session, ...]) -> tuple[Turn, ...]:
    if not item.dialogue:
        return ()
    time = item.time or sessions[-1].turns[-1].time
    line = {"id": f"{name}/dialogue", "turns": item.dialogue, "time": time.isoformat()}
    return read_line(json.dumps(line), f"{place}, dialogue", Names()).turns
