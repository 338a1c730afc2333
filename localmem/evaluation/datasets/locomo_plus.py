"""LoCoMo-Plus (2026): a remark in a LoCoMo conversation, and much later a message that it should change the reply to.

Source: xjtuleeyf/Locomo-Plus on GitHub, data/locomo_plus.json, with LoCoMo's own locomo10.json in the same folder.
Licence: CC BY-NC 4.0 for the conversations (LoCoMo's); none is stated for the remarks.

As its authors stitch them, item N goes into conversation N modulo their number: A is speaker_a, the message comes a
week after the last session, and the remark is a session of its own, `time_gap` before it ("several months" counts as
one, where their code takes it as no time at all). An item is an episode, the message the next turn to reply to, and the
remark its evidence; there are no gold answers.
"""

import re
from datetime import datetime, timedelta
from pathlib import Path

from localmem.errors import BadInput
from localmem.evaluation.datasets import locomo
from localmem.evaluation.datasets.readers import Reading, Record, build_session, read_episodes, speakers_of
from localmem.evaluation.episodes import Dataset, Episode, Probe, half_of
from localmem.types import Session

COUNTS = (401,)  # remarks

_CONVERSATIONS = "locomo10.json"
_WAIT = timedelta(days=7)  # from the last session to the message
_DAYS = {"week": 7, "month": 30, "year": 365}
_WORDS = ("a", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_GAP = re.compile(r"(\d+|[a-z]+) (week|month|year)s?\b", re.IGNORECASE)
_LINE = re.compile(r"^\s*([AB]):\s*(.+)$", re.MULTILINE)


class _Item(Record):
    relation_type: str
    cue_dialogue: str
    trigger_query: str
    time_gap: str


def read(path: Path) -> Dataset:
    """One episode per remark. Raises BadInput with file and record."""
    conversations = locomo.read(path.with_name(_CONVERSATIONS)).episodes

    def episode(place: str, record: _Item, reading: Reading) -> Episode:
        sessions = conversations[(reading.records - 1) % len(conversations)].sessions
        return _episode(place, record, f"plus-{reading.records}", sessions)

    return read_episodes("locomo_plus", path, _Item, episode, remarks=COUNTS)


def _episode(place: str, record: _Item, name: str, sessions: tuple[Session, ...]) -> Episode:
    names = dict(zip("AB", speakers_of(sessions), strict=False))
    user = next(turn.speaker for session in sessions for turn in session.turns if turn.role == "user")
    if names["A"] != user:  # the other one began
        names = {"A": names["B"], "B": names["A"]}
    time = sessions[-1].turns[0].time + _WAIT
    utterances = [(names[mark], text) for mark, text in _LINE.findall(record.cue_dialogue)]
    queries = [text for _, text in _LINE.findall(record.trigger_query)]
    if not utterances or not queries:
        raise BadInput(f"{place}: no line begins with 'A:' or 'B:'; use LoCoMo-Plus's own file")
    cue = build_session(f"{name}/cue", utterances, user, _before(place, time, record.time_gap))
    probe = Probe(
        id=f"{name}/query",
        question="\n".join(queries),
        answer="",
        type=record.relation_type,
        time=time,
        evidence=tuple(turn.id for turn in cue.turns),
        sessions=(cue.id,),
        kind="next",
        speaker=names["B"],
    )
    ordered = sorted((*sessions, cue), key=lambda session: session.turns[0].time)
    return Episode(name, half_of(name), tuple(ordered), (probe,))


def _before(place: str, time: datetime, gap: str) -> datetime:
    for number, unit in _GAP.findall(gap):
        word = number.lower()
        count = int(number) if number.isdigit() else max(1, _WORDS.index(word) if word in _WORDS else 1)
        return time - timedelta(days=count * _DAYS[unit.lower()])
    raise BadInput(f"{place}: the time_gap {gap!r} names no weeks, months or years; use LoCoMo-Plus's own file")
