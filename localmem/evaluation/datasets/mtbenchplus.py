"""MT-Bench+ (MemoChat, Lu et al., 2023): a user's requests on several topics, and a last one about earlier topics.

Source: LuJunru/MemoChat, data/mtbenchplus/mtbenchplus.json. Licence: MIT.

`turn-info` names a request's topic and its place in it (roleplay-95-0); that of the last request names its source
topics (roleplay-98-extraction-132-Q), whose requests are its evidence. The assistant's turns are empty in the published
file and are left out. Five consecutive sessions make one history, as SeCom merges them for Long-MT-Bench+ (appendix
A.7); a topic that returns within a history is read once, since its requests are the same. There are no times, so
sessions are a day apart from 1970 on; there are no gold answers either.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import UNDATED, Record, build_dataset, read_records, size_note
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of, sessions_with
from localmem.types import Session, Turn

COUNTS = (54,)  # sessions, each with one question (SeCom, appendix A.7)
MERGED = 5  # sessions in one history (SeCom, appendix A.7)

_DIALOGUE = 2  # requests before the question that are its dialogue
_TOPIC = re.compile(r"[a-z]+-\d+")


class _Message(Record):
    value: str
    speaker: str = Field(alias="from")
    info: str | None = Field(default=None, alias="turn-info")


class _Dialogue(Record):
    id: str
    type: str
    conversations: list[_Message]


def read(path: Path) -> Dataset:
    """Histories of five sessions each; the last may have fewer. Raises BadInput with file and place."""
    oddities: Counter[str] = Counter()
    records = read_records(path, _Dialogue)
    episodes = [_episode(group, oddities) for group in iter(lambda: list(islice(records, MERGED)), [])]
    count = sum(len(episode.probes) for episode in episodes)
    return build_dataset("mtbenchplus", path, episodes, oddities, size_note("sessions", count, COUNTS))


def _episode(group: Sequence[tuple[str, _Dialogue]], oddities: Counter[str]) -> Episode:
    name = group[0][1].id
    dialogues = [(place, record, list(_requests(place, record))) for place, record in group]
    sessions: list[Session] = []
    ids: set[str] = set()
    for day, (_, record, requests) in enumerate(dialogues):
        turns = [_turn(name, request, day, number) for number, request in enumerate(requests[:-1])]
        repeated = sum(turn.id in ids for turn in turns)
        oddities["requests of a topic that returns within a history, read once"] += repeated
        sessions.append(Session(f"{name}/{record.id}", tuple(turn for turn in turns if turn.id not in ids)))
        ids |= {turn.id for turn in turns}
    filled = tuple(session for session in sessions if session.turns)
    probes = tuple(
        _probe(place, record, requests, filled, name, day) for day, (place, record, requests) in enumerate(dialogues)
    )
    return Episode(name, half_of(name), filled, probes)


def _requests(place: str, record: _Dialogue) -> Iterator[_Message]:
    for message in record.conversations:
        if message.speaker == "human":
            if message.info is None:
                raise BadInput(f"{place}: a human turn has no turn-info ({message.value!r:.40}); use MT-Bench+'s file")
            yield message


def _turn(name: str, request: _Message, day: int, number: int) -> Turn:
    time = UNDATED + timedelta(days=day, seconds=number)
    return Turn(f"{name}/{request.info}", "user", "User", request.value, time)


def _probe(
    place: str, record: _Dialogue, requests: Sequence[_Message], sessions: tuple[Session, ...], name: str, day: int
) -> Probe:
    sources = _TOPIC.findall(str(requests[-1].info)) if requests and str(requests[-1].info).endswith("-Q") else []
    if not sources:
        raise BadInput(f"{place}: turn-info of the last request names no topic, as in roleplay-95-Q; correct the file")
    ids = [turn.id for session in sessions for turn in session.turns]
    evidence = tuple(key for key in ids if key.partition("/")[2].rpartition("-")[0] in sources)
    earlier = [_turn(name, request, day, number) for number, request in enumerate(requests[:-1])]
    return Probe(
        id=record.id,
        question=requests[-1].value,
        answer="",
        type=record.type,
        time=UNDATED + timedelta(days=day, seconds=len(earlier)),
        evidence=evidence,
        sessions=sessions_with(sessions, evidence),
        dialogue=tuple(earlier[-_DIALOGUE:]),
    )
