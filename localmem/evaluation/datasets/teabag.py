"""TeaBag (Theanine, Ong et al., NAACL 2025, appendix D): five sessions and two counterfactual questions with lead-ins.

Source: TeaFarm makes it from MSC and Conversation Chronicles. The authors' published set was not available when this
was written, so the form here is ours and covers everything that appendix D lists; `write` makes such files. Licence:
that of the source data; the authors' set is for academic and non-commercial use.

JSON, a list of episodes or one per line: {"id", "source", "sessions", "probes"}. A session is {"id", "time", "turns"},
a turn {"speaker", "text"}; the first speaker takes the user's role, and a session without a time is one day after the
previous one. A probe is {"question", "answer", "asker", "session"}: "session" is the sixth session, a list of turns
that leads the asker to the question, which follows its last turn. The other speaker replies. Both probes come after
the last session.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime, Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.readers import (
    UNDATED,
    Reading,
    Record,
    build_session,
    read_episodes,
    set_role,
    speakers_of,
)
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of
from localmem.files import write_jsonl
from localmem.types import Session, Turn

COUNTS = (100,)  # episodes, half of them from either data set (appendix D)
TYPE = "counterfactual"


class _Turn(Record):
    speaker: str
    text: str


class _Session(Record):
    id: str
    time: AwareDatetime | None = None
    turns: list[_Turn] = Field(min_length=1)


class _Probe(Record):
    question: str
    answer: str
    asker: str
    session: list[_Turn] = Field(default_factory=list)


class _Episode(Record):
    id: str
    source: str = ""
    sessions: list[_Session] = Field(min_length=1)
    probes: list[_Probe] = Field(min_length=1)


def read(path: Path) -> Dataset:
    """One episode per record. Raises BadInput with file and place."""
    return read_episodes("teabag", path, _Episode, _episode, episodes=COUNTS)


def write(path: Path, episodes: Iterable[Episode], source: str = "") -> None:
    """Write a file that `read` turns back into these episodes, whose probes all have a speaker. Raises BadInput."""
    write_jsonl(path, (_record(episode, source) for episode in episodes), "choose another file")


def _episode(place: str, record: _Episode, reading: Reading) -> Episode:
    name = reading.unique(record.id)
    sessions = _sessions(name, record.sessions)
    speakers = speakers_of(sessions)
    if len(speakers) != 2:
        raise BadInput(f"{place}: the sessions have the speakers {list(speakers)}; a TeaBag episode has two")
    later = sessions[-1].turns[-1].time + timedelta(days=1)
    probes: list[Probe] = []
    for number, item in enumerate(record.probes, start=1):
        if item.asker not in speakers:
            raise BadInput(f"{place}: the asker {item.asker!r} is not {' or '.join(speakers)}; correct the file")
        (replier,) = (speaker for speaker in speakers if speaker != item.asker)
        probes.append(_probe(f"{name}/q{number}", item, replier, later))
    reading.oddities["episodes with a number of questions other than 2"] += len(probes) != 2  # one for each speaker
    return Episode(name, half_of(record.id), sessions, tuple(probes))


def _sessions(name: str, items: Sequence[_Session]) -> tuple[Session, ...]:
    sessions: list[Session] = []
    start, user = UNDATED, items[0].turns[0].speaker
    for item in items:
        start = item.time or start
        utterances = ((turn.speaker, turn.text) for turn in item.turns)
        sessions.append(build_session(f"{name}/{item.id}", utterances, user, start))
        start += timedelta(days=1)
    return tuple(sessions)


def _probe(name: str, item: _Probe, replier: str, start: datetime) -> Probe:
    utterances = ((turn.speaker, turn.text) for turn in item.session)
    lead = tuple(set_role(turn, replier) for turn in build_session(name, utterances, item.asker, start).turns)
    return Probe(
        id=name,
        question=item.question,
        answer=item.answer,
        type=TYPE,
        time=lead[-1].time + timedelta(seconds=1) if lead else start,
        dialogue=lead,
        speaker=replier,
    )


def _record(episode: Episode, source: str) -> dict[str, object]:
    speakers = speakers_of(episode.sessions)
    return {
        "id": episode.id,
        "source": source,
        "sessions": [
            {
                "id": session.id.removeprefix(f"{episode.id}/"),
                "time": session.turns[0].time.isoformat(),
                "turns": _turn_records(session.turns),
            }
            for session in episode.sessions
        ],
        "probes": [
            {
                "question": probe.question,
                "answer": probe.answer,
                "asker": next(speaker for speaker in speakers if speaker != probe.speaker),
                "session": _turn_records(probe.dialogue),
            }
            for probe in episode.probes
        ],
    }


def _turn_records(turns: Iterable[Turn]) -> list[dict[str, str]]:
    return [{"speaker": turn.speaker, "text": turn.text} for turn in turns]
