"""A user's own logs with questions about them, as JSONL. Source and licence are the user's own.

A line is a session or a probe. A session is what `localmem remember` reads: {"id": "...", "time": "2026-03-02T18:05Z",
"turns": [{"role": "user", "text": "..."}, ...]}, each turn optionally with its own `time` and `speaker`. A probe is
{"question": "...", "answer": "..."}, with these optional fields:

    id         its name; default: q1, q2 and so on
    answers    further answers that are equally right: a list
    type       the kind of question, for a report by kinds
    time       the time of the question
    after      the id of the session after which it is asked; default: the last one
    sessions   ids of the sessions that contain the answer: a list
    evidence   ids of the turns that contain it: the id of the session, a full stop, and the turn's index from 0
    dialogue   turns just before the question, written like those of a session
    kind       "next" if the answer is the next thing to say; default: "question"

`user` in any line assigns it to the episode of that name; lines without it belong to one user. Sessions are sorted by
time; probes keep the order of the file.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import CURE, Record, build_dataset, parse_record, parse_value
from localmem.evaluation.episodes import Dataset, Episode, Kind, Probe, half_of, sessions_with
from localmem.files import read_lines
from localmem.transfer.session_lines import ZonedTime, parse_session
from localmem.types import Session, Turn

_DEFAULT = "user"  # the episode of lines without a user


class _User(Record):
    user: str = Field(default=_DEFAULT, min_length=1)


class _Probe(_User):
    question: str = Field(min_length=1)
    answer: str = ""
    answers: list[str] = Field(default_factory=list)
    id: str | None = None
    type: str = "question"
    time: ZonedTime | None = None
    after: str = ""
    sessions: list[str] = Field(default_factory=list)
    evidence: list[str] = Field(default_factory=list)
    dialogue: list[dict[str, object]] = Field(default_factory=list)
    kind: Kind = "question"


def read(path: Path) -> Dataset:
    """One episode per user. Raises BadInput with file and line."""
    users: dict[str, dict[str, Session]] = {}
    probes: defaultdict[str, list[tuple[str, _Probe]]] = defaultdict(list)
    for place, text in read_lines(path, CURE):
        value = parse_value(place, text)
        user = parse_record(place, value, _User).user
        sessions = users.setdefault(user, {})
        if isinstance(value, Mapping) and "question" in value:
            probes[user].append((place, parse_record(place, value, _Probe)))
            continue
        session = parse_session(text, place)
        if session.id in sessions:
            raise BadInput(f"{place}: there is already a session {session.id!r}; give each session its own id")
        sessions[session.id] = session
    if not users:
        raise BadInput(f"{path} contains no record; each line must be a session with its turns, or a probe")
    oddities: Counter[str] = Counter()
    episodes = [_episode(path, name, own.values(), probes[name], oddities) for name, own in users.items()]
    return build_dataset("jsonl", path, episodes, oddities)


def _episode(
    path: Path,
    name: str,
    unsorted: Collection[Session],
    records: Sequence[tuple[str, _Probe]],
    oddities: Counter[str],
) -> Episode:
    if not unsorted:
        raise BadInput(f"{path}: {name!r} has probes and no session; add the sessions that they are about")
    sessions = tuple(sorted(unsorted, key=lambda session: session.turns[0].time))
    probes = tuple(_probe(place, number, record, sessions) for number, (place, record) in enumerate(records, start=1))
    if len({probe.id for probe in probes}) < len(probes):
        raise BadInput(f"{path}: two probes of {name!r} have the same id; give each its own id")
    oddities["probes without evidence"] += sum(not (probe.evidence or probe.sessions) for probe in probes)
    return Episode(name, half_of(name), sessions, probes)


def _probe(place: str, number: int, record: _Probe, sessions: tuple[Session, ...]) -> Probe:
    name = record.id or f"q{number}"
    evidence = tuple(record.evidence)
    session_ids = {session.id for session in sessions}
    turn_ids = {turn.id for session in sessions for turn in session.turns}
    named = [*record.sessions, *filter(None, [record.after])]
    for kind, keys, ids in (("turn", evidence, turn_ids), ("session", named, session_ids)):
        if missing := [key for key in keys if key not in ids]:
            raise BadInput(f"{place}: there is no {kind} {missing[0]!r}; name one that the file contains")
    return Probe(
        id=name,
        question=record.question,
        answer=record.answer,
        type=record.type,
        time=record.time,
        evidence=evidence,
        sessions=tuple(record.sessions) or sessions_with(sessions, evidence),
        dialogue=_dialogue(place, name, record, sessions),
        kind=record.kind,
        after=record.after,
        others=tuple(record.answers),
    )


def _dialogue(place: str, name: str, record: _Probe, sessions: tuple[Session, ...]) -> tuple[Turn, ...]:
    if not record.dialogue:
        return ()
    time = record.time or sessions[-1].turns[-1].time
    line = {"id": f"{name}/dialogue", "turns": record.dialogue, "time": time.isoformat()}
    return parse_session(json.dumps(line), f"{place}, dialogue").turns
