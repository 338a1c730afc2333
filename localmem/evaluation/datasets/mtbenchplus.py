"""MT-Bench+ (MemoChat, Lu et al., 2023): a user's requests on several topics, and a last one about earlier topics.

Source: LuJunru/MemoChat, data/mtbenchplus/mtbenchplus.json. Licence: MIT.

`turn-info` names a request's topic and its place in it (roleplay-95-0); the last request's names its source topics
(roleplay-98-extraction-132-Q), and its evidence are their requests. The assistant's turns are empty in the published
file and are left out. Five consecutive sessions make one history, as SeCom merges them for Long-MT-Bench+ (appendix
A.7); a topic that comes again in a history is read once, for its requests are the same. There are no times, so sessions
stand a day apart from 1970 on; there are no gold answers either.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.files import Record, file_sha256, read_records
from localmem.evaluation.episodes import Dataset, Episode, Probe, counted, differing, half_of, sessions_of
from localmem.types import Session, Turn

COUNTS = (54,)  # sessions, each with one question (SeCom, appendix A.7)
MERGED = 5  # sessions in one history (SeCom, appendix A.7)

_UNDATED = datetime(1970, 1, 1, tzinfo=UTC)
_BEFORE = 2  # requests before the question that are its dialogue
_TOPIC = re.compile(r"[a-z]+-\d+")


class _Said(Record):
    value: str
    speaker: str = Field(alias="from")
    info: str | None = Field(default=None, alias="turn-info")


class _Dialogue(Record):
    id: str
    type: str
    conversations: list[_Said]


def read(path: Path) -> Dataset:
    """Histories of five sessions each; the last may have fewer. Raises BadInput with file and place."""
    oddities: Counter[str] = Counter()
    given = read_records(path, _Dialogue)
    episodes: list[Episode] = []
    while group := list(islice(given, MERGED)):
        episodes.append(_episode(group, oddities))
    asked = sum(len(episode.probes) for episode in episodes)
    return Dataset(
        "mtbenchplus", file_sha256(path), tuple(episodes), (*counted(oddities), *differing("sessions", asked, COUNTS))
    )


def _episode(group: Sequence[tuple[str, _Dialogue]], oddities: Counter[str]) -> Episode:
    name = group[0][1].id
    asked = [(place, item, list(_requests(place, item))) for place, item in group]
    sessions: list[Session] = []
    seen: set[str] = set()
    for day, (_, item, requests) in enumerate(asked):
        turns = [_turn(name, request, day, number) for number, request in enumerate(requests[:-1])]
        oddities["requests of a topic that comes again in a history, read once"] += sum(t.id in seen for t in turns)
        sessions.append(Session(f"{name}/{item.id}", tuple(turn for turn in turns if turn.id not in seen)))
        seen |= {turn.id for turn in turns}
    held = tuple(session for session in sessions if session.turns)
    probes = tuple(_probe(place, item, requests, held, name, day) for day, (place, item, requests) in enumerate(asked))
    return Episode(name, half_of(name), held, probes)


def _requests(place: str, item: _Dialogue) -> Iterator[_Said]:
    for said in item.conversations:
        if said.speaker == "human":
            if said.info is None:
                raise BadInput(f"{place}: a human's turn has no turn-info ({said.value!r:.40}); give MT-Bench+'s file")
            yield said


def _turn(name: str, said: _Said, day: int, number: int) -> Turn:
    time = _UNDATED + timedelta(days=day, seconds=number)
    return Turn(f"{name}/{said.info}", "user", "User", said.value, time)


def _probe(
    place: str, item: _Dialogue, requests: Sequence[_Said], sessions: tuple[Session, ...], name: str, day: int
) -> Probe:
    sources = _TOPIC.findall(str(requests[-1].info)) if requests and str(requests[-1].info).endswith("-Q") else []
    if not sources:
        raise BadInput(f"{place}: the last request names no topic in turn-info, as in roleplay-95-Q; mend the file")
    ids = [turn.id for session in sessions for turn in session.turns]
    evidence = tuple(one for one in ids if one.partition("/")[2].rpartition("-")[0] in sources)
    before = [_turn(name, said, day, number) for number, said in enumerate(requests[:-1])]
    return Probe(
        id=item.id,
        question=requests[-1].value,
        answer="",
        type=item.type,
        time=_UNDATED + timedelta(days=day, seconds=len(before)),
        evidence=evidence,
        sessions=sessions_of(sessions, evidence),
        dialogue=tuple(before[-_BEFORE:]),
    )
