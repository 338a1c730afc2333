"""What the readers share: checked records from JSON or JSON lines, and sessions, probes and gold memories from these.

A file of gigabytes (LongMemEval_M has 2.7) is never in memory at once. Every error is a BadInput of one line with the
file and the line or record.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import file_digest
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TextIO, TypeVar

from pydantic import BaseModel, ConfigDict, field_validator

from localmem import files
from localmem.errors import BadInput
from localmem.evaluation.episodes import Dataset, Episode, Probe
from localmem.types import Session, Turn, Unit

CURE = "use the data set's own file"
UNDATED = datetime(1970, 1, 1, tzinfo=UTC)  # the first time in a data set without times
_CHUNK = 1 << 24  # characters read at once; larger than most records, so that few are parsed twice
_SEPARATORS = " \t\r\n,"
_TOLERATED = 20  # one bad record in so many is skipped


class Record(BaseModel):
    """A record of a published file; fields that the reader does not need are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)

    @field_validator("*", mode="before")
    @classmethod
    def _check_numbers(cls, value: object) -> object:
        """NaN stands for a missing value in tables, and would otherwise be read as the word."""
        values = value if isinstance(value, list) else [value]
        if any(isinstance(each, float) and not isfinite(each) for each in values):
            raise ValueError("NaN and infinity are no values; leave the field out, or write a text")
        return value


AnyRecord = TypeVar("AnyRecord", bound=Record)


def file_sha256(path: Path) -> str:
    """The checksum of the file. Raises BadInput for a file that cannot be read."""
    with files.reading(path, CURE), path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def read_records(
    path: Path, form: type[AnyRecord], reading: "Reading | None" = None
) -> Iterator[tuple[str, AnyRecord]]:
    """Each record with its place, from a JSON list or JSON lines. Raises BadInput with file and place.

    With a `reading`, records are counted there, and bad ones are skipped as its `skipping` says.
    """
    empty = True
    for place, value in _read_values(path):
        empty = False
        if reading is None:
            yield place, parse_record(place, value, form)
            continue
        record = None
        with reading.skipping():
            reading.records += 1
            record = parse_record(place, value, form)
        if record is not None:
            yield place, record
    if empty:
        raise BadInput(f"{path} contains no record; {CURE}")


def parse_record(place: str, value: object, form: type[AnyRecord]) -> AnyRecord:
    """The value as a record. Raises BadInput with its place and the first wrong field."""
    return files.parse(place, value, form, CURE)


def parse_value(place: str, text: str) -> object:
    """The value that a JSON text holds. Raises BadInput with its place."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(f"{place} is not JSON: {error}; {CURE}") from error


def parse_time(text: str, pattern: str, place: str) -> datetime:
    """A time in the data set's format. It has no zone and is taken as UTC. Raises BadInput."""
    try:
        return datetime.strptime(text, pattern).replace(tzinfo=UTC)
    except ValueError as error:
        raise BadInput(f"{place}: the time {text!r} does not have the form {pattern}; correct the file") from error


def build_dataset(
    name: str, path: Path, episodes: Iterable[Episode], oddities: Counter[str], *notes: str, first: str = ""
) -> Dataset:
    """The data set with its file's checksum. Its notes: `first`, each oddity with its count, `notes`; none is empty."""
    counts = (f"{oddity}: {count}" for oddity, count in sorted(oddities.items()) if count)
    return Dataset(name, file_sha256(path), tuple(episodes), tuple(filter(None, [first, *counts, *notes])))


def read_episodes(
    name: str,
    path: Path,
    form: type[AnyRecord],
    build: "Callable[[str, AnyRecord, Reading], Episode]",
    **published: Collection[int],
) -> Dataset:
    """The data set of a file with one episode per record. Raises BadInput with file and place.

    `build` gets the place, the record and what was read so far. `published` are the sizes of the published files, by
    noun: sessions and questions are counted, any other noun means episodes.
    """
    reading, episodes = Reading(), list[Episode]()
    for place, record in read_records(path, form, reading):
        with reading.skipping():
            episodes.append(build(place, record, reading))
    reading.finish()
    counts = {
        "sessions": sum(len(episode.sessions) for episode in episodes),
        "questions": sum(len(episode.probes) for episode in episodes),
    }
    notes = (size_note(noun, counts.get(noun, len(episodes)), sizes) for noun, sizes in published.items())
    return build_dataset(name, path, episodes, reading.oddities, *notes)


class Reading:
    """What is counted while a file is read: its `records`, their `oddities`, and the ids so far."""

    def __init__(self) -> None:
        self.records = 0
        self.oddities: Counter[str] = Counter()
        self._names: Counter[str] = Counter()
        self._errors: list[BadInput] = []

    @contextmanager
    def skipping(self) -> Iterator[None]:
        """Skips the record that the block reads if it is bad; `finish` reports it."""
        try:
            yield
        except BadInput as error:
            self._errors.append(error)

    def finish(self) -> None:
        """Adds the skipped records to the oddities. Raises the first error where more than one in twenty is bad: then
        it is another kind of file."""
        if not self._errors:
            return
        if len(self._errors) * _TOLERATED > self.records:
            raise self._errors[0]
        self.oddities[f"bad records, left out (first: {self._errors[0]})"] = len(self._errors)

    def unique(self, name: str) -> str:
        """The id; the second record of one id becomes id#2, and so on."""
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}#{self._names[name]}"


def size_note(noun: str, count: int, published: Collection[int]) -> str:
    """A note if the published files hold another number; not an error, for one may use a part of a data set."""
    sizes = " or ".join(map(str, sorted(published)))
    return "" if count in published else f"{count} {noun}; the published files hold {sizes}"


def nearest_sessions(sessions: Sequence[Session], index: int, count: int) -> tuple[Session, ...]:
    """The session at `index` and the `count` nearest in the file: half before and half after it, except at the ends."""
    first = max(0, min(index - count // 2, len(sessions) - count - 1))
    return tuple(sessions[first : first + count + 1])


def build_session(name: str, utterances: Iterable[tuple[str, str]], user: str, start: datetime) -> Session:
    """A session from (speaker, text) pairs; every speaker other than `user` takes the assistant's role.

    Data sets date sessions and not turns, so each turn is one second after the previous one.
    """
    turns = (
        Turn(f"{name}.{n}", "user" if speaker == user else "assistant", speaker, text, start + timedelta(seconds=n))
        for n, (speaker, text) in enumerate(utterances)
    )
    return Session(name, tuple(turns))


def memory_unit(key: str, text: str, speaker: str, session: str, time: datetime) -> Unit:
    """A sentence that the data set gives as a memory of a session: its key is its text, and it has no source turns."""
    return Unit(key, text, text, "memory", speaker, session, (), time, time)


def next_turn_probes(
    name: str,
    turns: Sequence[Turn],
    *,
    kind: str,
    after: str,
    oddities: Counter[str] | None = None,
    repliers: Collection[str] | None = None,
    evidence: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Probe, ...]:
    """A probe for each turn that answers another speaker's: given the session so far, what is said next?

    Restricted to the speakers in `repliers` if given. `evidence` maps a turn id to the ids that the reply rests on.
    `oddities` counts the turns that answer nobody.
    """
    probes = tuple(
        Probe(
            id=f"{name}/{index}",
            question=previous.text,
            answer=turn.text,
            type=kind,
            time=turn.time,
            evidence=(evidence or {}).get(turn.id, ()),
            dialogue=tuple(set_role(earlier, turn.speaker) for earlier in turns[: index - 1]),
            kind="next",
            after=after,
            speaker=turn.speaker,
        )
        for index, (previous, turn) in enumerate(pairwise(turns), start=1)
        if previous.speaker != turn.speaker and (repliers is None or turn.speaker in repliers)
    )
    if oddities is not None:
        same_speaker = "turns that follow a turn of the same speaker, not used as probes"
        oddities[same_speaker] += max(0, len(turns) - 1) - len(probes)
    return probes


def speakers_of(sessions: Iterable[Session]) -> tuple[str, ...]:
    """All speakers, in the order of their first turns."""
    return tuple(dict.fromkeys(turn.speaker for session in sessions for turn in session.turns))


def set_role(turn: Turn, replier: str) -> Turn:
    """The turn in the role it has when `replier` is to reply: that speaker's turns are the assistant's."""
    return replace(turn, role="assistant" if turn.speaker == replier else "user")


def _read_values(path: Path) -> Iterator[tuple[str, object]]:
    if files.is_json_list(path, CURE):
        yield from _read_list(path)
    else:
        for place, text in files.read_lines(path, CURE):
            yield place, parse_value(place, text)


def _read_list(path: Path) -> Iterator[tuple[str, object]]:
    """The values of a JSON list, each parsed as soon as its text has been read to the end."""
    decoder, number = json.JSONDecoder(), 0
    with path.open(encoding="utf-8-sig") as stream:
        text = _read_chunk(path, stream).lstrip()[1:].lstrip(_SEPARATORS)
        while not text.startswith("]"):
            try:
                value, end = decoder.raw_decode(text)
            except json.JSONDecodeError as error:
                chunk = _read_chunk(path, stream)
                if not chunk:
                    raise BadInput(f"{path}, record {number + 1} is not JSON: {error}; {CURE}") from error
                text = (text + chunk).lstrip(_SEPARATORS)
                continue
            number += 1
            yield f"{path}, record {number}", value
            text = text[end:].lstrip(_SEPARATORS)
        if (text[1:] + _read_chunk(path, stream)).strip():
            raise BadInput(f"{path} has text after its list of {number} records; {CURE}")


def _read_chunk(path: Path, stream: TextIO) -> str:
    with files.reading(path, CURE):
        return stream.read(_CHUNK)
