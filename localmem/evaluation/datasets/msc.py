"""Multi-Session Chat (Xu et al., ACL 2022): two crowd workers who meet again up to four times, as ParlAI publishes it.

Source: msc_v0.1.tar.gz of ParlAI, files msc_dialogue/session_N/{train,valid,test}.txt, one JSON record a line. Licence:
ParlAI is MIT; none is stated for the data alone, and Theanine uses them as for academic, non-commercial use.

A record is an episode: `previous_dialogs` are its sessions, and `dialog`, the session N, is asked for utterance by
utterance, of both speakers as in ParlAI. That session is no session of the episode, for nothing is asked after it.
`time_num` and `time_unit` of a previous dialogue are the gap to the next one, so sessions stand at their distances from
1970 on; a unit that is not known counts as a day, and the notes say so. Speaker 1, who opens each session, takes the
user's role. What the speakers are known to be by then (`personas`, else `init_personas`) is the gold memory of the last
previous session.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import Field

from localmem.errors import BadInput
from localmem.evaluation.datasets.dialogues import SAME_SPEAKER, UNDATED, Names, memory, next_probes, session
from localmem.evaluation.datasets.files import Record, file_sha256, read_records
from localmem.evaluation.episodes import Dataset, Episode, counted, differing, half_of
from localmem.types import Session, Unit

# Episodes in a file: session 5 has 500 (valid) and 501 (test), as have sessions 2 to 4, whose train files hold 4,000,
# 4,000 and 1,001 (Xu et al., Table 2; LLM-Rsum, Table 1).
COUNTS = (500, 501, 1001, 4000)

_SPEAKERS = ("Speaker 1", "Speaker 2")
_GAPS: Mapping[str, timedelta] = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}


class _Said(Record):
    text: str
    id: str | None = None


class _Previous(Record):
    dialog: list[_Said] = Field(min_length=1)
    time_num: float = 1
    time_unit: str = "days"


class _Metadata(Record):
    initial_data_id: str


class _Episode(Record):
    metadata: _Metadata
    previous_dialogs: list[_Previous] = Field(min_length=1)
    dialog: list[_Said]
    personas: list[list[str]] = Field(default_factory=list)
    init_personas: list[list[str]] = Field(default_factory=list)


def read(path: Path) -> Dataset:
    """Every record as an episode. Raises BadInput with file and line."""
    oddities: Counter[str] = Counter()
    names = Names()
    episodes = tuple(_episode(place, item, names, oddities) for place, item in read_records(path, _Episode))
    return Dataset(
        "msc", file_sha256(path), episodes, (*counted(oddities), *differing("episodes", len(episodes), COUNTS))
    )


def _episode(place: str, item: _Episode, names: Names, oddities: Counter[str]) -> Episode:
    name = names.once(item.metadata.initial_data_id)
    sessions: list[Session] = []
    start = UNDATED
    for number, previous in enumerate(item.previous_dialogs, start=1):
        sessions.append(_session(place, f"{name}/{number}", previous.dialog, start))
        start += _gap(previous, oddities)
    last = sessions[-1]
    asked = _session(place, f"{name}/{len(sessions) + 1}", item.dialog, start)
    probes = next_probes(asked.id, asked.turns, kind=f"session {len(sessions) + 1}", after=last.id)
    oddities[SAME_SPEAKER] += max(0, len(asked.turns) - 1) - len(probes)
    golds = {last.id: _golds(last.id, item, last.turns[-1].time)}
    return Episode(name, half_of(item.metadata.initial_data_id), tuple(sessions), probes, golds=golds)


def _session(place: str, name: str, said: Sequence[_Said], start: datetime) -> Session:
    speakers = [one.id or _SPEAKERS[number % 2] for number, one in enumerate(said)]
    strange = set(speakers).difference(_SPEAKERS)
    if strange:
        raise BadInput(f"{place}: the speaker {strange.pop()!r} is neither Speaker 1 nor 2; give MSC's own file")
    texts = (one.text for one in said)
    return session(name, zip(speakers, texts, strict=True), _SPEAKERS[0], start)


def _gap(previous: _Previous, oddities: Counter[str]) -> timedelta:
    unit = previous.time_unit.strip().lower().removesuffix("s")
    oddities["gaps in a unit that is not known, taken for days"] += unit not in _GAPS
    return previous.time_num * _GAPS.get(unit, _GAPS["day"])


def _golds(of: str, item: _Episode, time: datetime) -> tuple[Unit, ...]:
    known = item.personas if any(item.personas) else item.init_personas
    return tuple(
        memory(f"{of}/{speaker}/{number}", text, speaker, of, time)
        for speaker, texts in zip(_SPEAKERS, known, strict=False)
        for number, text in enumerate(texts)
    )
