"""Reading a data set's file: JSON or JSON lines become checked records, one after the other.

A file of gigabytes (LongMemEval_M has 2.7) is never in memory at once. Every error is a BadInput of one line with the
file and the line or record.
"""

import json
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from typing import TextIO, TypeVar

from pydantic import BaseModel, ConfigDict

from localmem import files
from localmem.errors import BadInput
from localmem.evaluation.episodes import Dataset, Episode

CURE = "use the data set's own file"

_PEEK = 256  # bytes that show whether a file is a list
_CHUNK = 1 << 24  # characters read at once; larger than most records, so that few are parsed twice
_SEPARATORS = " \t\r\n,"


class Record(BaseModel):
    """A record of a published file; fields that the reader does not need are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


AnyRecord = TypeVar("AnyRecord", bound=Record)


def file_sha256(path: Path) -> str:
    """The checksum of the file. Raises BadInput for a file that cannot be read."""
    with files.reading(path, CURE), path.open("rb") as stream:
        return file_digest(stream, "sha256").hexdigest()


def read_records(path: Path, form: type[AnyRecord]) -> Iterator[tuple[str, AnyRecord]]:
    """Each record with its place, from a JSON list or JSON lines. Raises BadInput with file and place."""
    empty = True
    for place, value in _read_values(path):
        empty = False
        yield place, parse_record(place, value, form)
    if empty:
        raise BadInput(f"{path} contains no record; {CURE}")


def parse_record(place: str, value: object, form: type[AnyRecord]) -> AnyRecord:
    """The value as a record. Raises BadInput with its place and the first wrong field."""
    return files.parse(place, value, form, CURE)


def parse_value(place: str, text: str) -> object:
    """The value that a JSON text holds. Raises BadInput with its place."""
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{place} is not JSON: {error}; {CURE}") from error
    return value


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
    for place, record in read_records(path, form):
        reading.records += 1
        episodes.append(build(place, record, reading))
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

    def unique(self, name: str) -> str:
        """The id; the second record of one id becomes id#2, and so on."""
        self._names[name] += 1
        return name if self._names[name] == 1 else f"{name}#{self._names[name]}"


def size_note(noun: str, count: int, published: Collection[int]) -> str:
    """A note if the published files hold another number; not an error, for one may use a part of a data set."""
    sizes = " or ".join(map(str, sorted(published)))
    return "" if count in published else f"{count} {noun}; the published files hold {sizes}"


def _read_values(path: Path) -> Iterator[tuple[str, object]]:
    with files.reading(path, CURE), path.open("rb") as stream:
        is_list = stream.read(_PEEK).removeprefix(BOM_UTF8).lstrip()[:1] == b"["
    if is_list:
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
