"""LoCoMo (Maharana et al., ACL 2024), as published: ten conversations of two people over months, and questions.

Source: snap-research/locomo, data/locomo10.json. Licence: CC BY-NC 4.0.

An image that is shared is told by its caption, as LoCoMo's own code shows it to a model. speaker_a takes the user's
role. Questions of category 5 ask for what was never said of that person; their evidence is what misleads, and it is
kept. Malformed evidence is mended where its meaning is plain, else dropped; both are counted in the notes.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.files import Record, file_sha256, moment, read_records
from localmem.evaluation.episodes import Dataset, Episode, Probe, counted, differing, half_of, sessions_of
from localmem.types import Session, Turn

# The names of the categories, by their numbers in the file (LoCoMo's evaluation code, section 4.1 of the paper).
CATEGORIES: Mapping[str, str] = {
    "1": "multi-hop",
    "2": "temporal",
    "3": "open-domain",
    "4": "single-hop",
    "5": "adversarial",
}

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
    """Every conversation as an episode. Raises BadInput with file and place."""
    oddities: Counter[str] = Counter()
    episodes = [_episode(place, item, oddities) for place, item in read_records(path, _Conversation)]
    asked = sum(len(episode.probes) for episode in episodes)
    notes = (*differing("conversations", len(episodes), COUNTS), *differing("questions", asked, QUESTIONS))
    return Dataset("locomo", file_sha256(path), tuple(episodes), (*counted(oddities), *notes))


def _episode(place: str, item: _Conversation, oddities: Counter[str]) -> Episode:
    sessions = tuple(_sessions(place, item))
    known = {turn.id for session in sessions for turn in session.turns}
    probes = tuple(
        _probe(f"{item.sample_id}/q{number}", question, item.sample_id, sessions, known, oddities)
        for number, question in enumerate(item.qa)
    )
    return Episode(item.sample_id, half_of(item.sample_id), sessions, probes)


def _sessions(place: str, item: _Conversation) -> Iterator[Session]:
    said = item.conversation
    numbers = sorted(int(match[1]) for key in said if (match := _SESSION.fullmatch(key)))
    if not numbers:
        raise BadInput(f"{place}: conversation holds no session_1; give LoCoMo's own file")
    for number in numbers:
        key = f"session_{number}"
        where = f"{place}, {key}"
        turns = _turns(where, said[key])
        start = moment(str(said.get(f"{key}_date_time")), _TIME, where)
        yield Session(
            f"{item.sample_id}/{number}",
            tuple(
                Turn(
                    f"{item.sample_id}/{turn.dia_id}",
                    "user" if turn.speaker == said.get("speaker_a") else "assistant",
                    turn.speaker,
                    _shown(turn),
                    start + timedelta(seconds=second),
                )
                for second, turn in enumerate(turns)
            ),
        )


def _turns(where: str, value: object) -> list[_Turn]:
    return parse_record(where, {"turns": value}, _Turns).turns


def _shown(turn: _Turn) -> str:
    return f"{turn.text} (shares an image: {turn.blip_caption})" if turn.blip_caption else turn.text


def _probe(
    name: str, item: _Question, sample: str, sessions: tuple[Session, ...], known: set[str], oddities: Counter[str]
) -> Probe:
    evidence = _evidence(item, sample, known, oddities)
    return Probe(
        id=name,
        question=item.question,
        answer=item.answer,
        type=CATEGORIES.get(item.category, item.category),
        time=None,
        evidence=evidence,
        sessions=sessions_of(sessions, evidence),
    )


def _evidence(item: _Question, sample: str, known: set[str], oddities: Counter[str]) -> tuple[str, ...]:
    """The ids of the turns. A field may hold several ids, one written as D:11:26, or one of no turn."""
    ids: list[str] = []
    for field in item.evidence:
        found = [f"D{session}:{turn}" for session, turn in _ID.findall(field)]
        oddities["evidence fields that were mended (several ids in one, or oddly written)"] += found != [field]
        ids += [f"{sample}/{one}" for one in found]
    kept = tuple(dict.fromkeys(one for one in ids if one in known))
    oddities["evidence ids of no turn, dropped"] += len(set(ids)) - len(kept)
    oddities["questions without evidence"] += not kept
    return kept
