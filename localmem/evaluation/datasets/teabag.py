"""TeaBag (Theanine, Ong et al., NAACL 2025, appendix D): five sessions and two counterfactual questions led up to.

Source: it is what TeaFarm makes of MSC and Conversation Chronicles. What the authors published was not to be had when
this was written, so the form here is ours and holds all that appendix D lists; `write` makes such files. Licence: that
of the data it was made of; the authors give theirs for academic and non-commercial use.

JSON, a list of episodes or one a line: {"id", "source", "sessions", "probes"}. A session is {"id", "time", "turns"}, a
turn {"speaker", "text"}; the first speaker takes the user's role, and a session without a time stands a day after the
one before it. A probe is {"question", "answer", "asker", "session"}: in the sixth session "session", a list of turns,
the asker is led to the question, which comes after its last turn. The other speaker is to answer. Both are asked after
the last session.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import AwareDatetime, Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.dialogues import UNDATED, Names, as_heard_by, session
from localmem.evaluation.datasets.files import Record, file_sha256, read_records
from localmem.evaluation.episodes import Dataset, Episode, Probe, counted, differing, half_of
from localmem.types import Session, Turn

COUNTS = (100,)  # episodes, half of them from either data set (appendix D)
TYPE = "counterfactual"

_PROBES = 2  # one a speaker


class _Said(Record):
    speaker: str
    text: str


class _Session(Record):
    id: str
    time: AwareDatetime | None = None
    turns: list[_Said] = Field(min_length=1)


class _Probe(Record):
    question: str
    answer: str
    asker: str
    session: list[_Said] = Field(default_factory=list)


class _Episode(Record):
    id: str
    source: str = ""
    sessions: list[_Session] = Field(min_length=1)
    probes: list[_Probe] = Field(min_length=1)


def read(path: Path) -> Dataset:
    """Every record as an episode. Raises BadInput with file and place."""
    oddities: Counter[str] = Counter()
    names = Names()
    episodes = tuple(_episode(place, item, names, oddities) for place, item in read_records(path, _Episode))
    return Dataset(
        "teabag", file_sha256(path), episodes, (*counted(oddities), *differing("episodes", len(episodes), COUNTS))
    )


def write(path: Path, episodes: Iterable[Episode], source: str = "") -> None:
    """A file that `read` gives back as these episodes, whose probes all have a speaker. Raises BadInput."""
    text = "".join(f"{json.dumps(_plain(episode, source), ensure_ascii=False)}\n" for episode in episodes)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write {path} ({error.strerror}); choose another file") from error


def _episode(place: str, item: _Episode, names: Names, oddities: Counter[str]) -> Episode:
    name = names.once(item.id)
    speakers = list(dict.fromkeys(said.speaker for one in item.sessions for said in one.turns))
    if len(speakers) != 2:
        raise BadInput(f"{place}: the sessions have the speakers {speakers}; TeaBag has two in an episode")
    sessions = _sessions(name, item.sessions, speakers[0])
    later = sessions[-1].turns[-1].time + timedelta(days=1)
    probes: list[Probe] = []
    for number, one in enumerate(item.probes, start=1):
        if one.asker not in speakers:
            raise BadInput(f"{place}: the asker {one.asker!r} is neither of {' and '.join(speakers)}; mend the file")
        probes.append(_probe(f"{name}/q{number}", one, next(who for who in speakers if who != one.asker), later))
    oddities[f"episodes with other than {_PROBES} questions"] += len(probes) != _PROBES
    return Episode(name, half_of(item.id), sessions, tuple(probes))


def _sessions(name: str, given: Sequence[_Session], user: str) -> tuple[Session, ...]:
    sessions: list[Session] = []
    start = UNDATED
    for one in given:
        start = one.time or start
        said = ((turn.speaker, turn.text) for turn in one.turns)
        sessions.append(session(f"{name}/{one.id}", said, user, start))
        start += timedelta(days=1)
    return tuple(sessions)


def _probe(name: str, one: _Probe, replier: str, later: datetime) -> Probe:
    said = ((turn.speaker, turn.text) for turn in one.session)
    led = tuple(as_heard_by(replier, turn) for turn in session(name, said, one.asker, later).turns)
    return Probe(
        id=name,
        question=one.question,
        answer=one.answer,
        type=TYPE,
        time=led[-1].time + timedelta(seconds=1) if led else later,
        evidence=(),
        sessions=(),
        dialogue=led,
        speaker=replier,
    )


def _plain(episode: Episode, source: str) -> dict[str, object]:
    speakers = list(dict.fromkeys(turn.speaker for one in episode.sessions for turn in one.turns))
    return {
        "id": episode.id,
        "source": source,
        "sessions": [
            {
                "id": one.id.removeprefix(f"{episode.id}/"),
                "time": one.turns[0].time.isoformat(),
                "turns": _told(one.turns),
            }
            for one in episode.sessions
        ],
        "probes": [
            {
                "question": probe.question,
                "answer": probe.answer,
                "asker": next(who for who in speakers if who != probe.speaker),
                "session": _told(probe.dialogue),
            }
            for probe in episode.probes
        ],
    }


def _told(turns: Iterable[Turn]) -> list[dict[str, str]]:
    return [{"speaker": turn.speaker, "text": turn.text} for turn in turns]
