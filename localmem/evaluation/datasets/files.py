"""Reading a data set's file: JSON or JSONL into checked records. A bad record is one line with file and place.

Records come one by one, so that a file of gigabytes (LongMemEval_M has 2.7) is never in memory as a whole.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import file_digest
from io import BufferedReader
from pathlib import Path
from typing import TextIO, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from localmem.errors import BadInput

_PEEK = 256  # bytes that show whether a file is a list
_CHUNK = 1 << 24  # characters read at once; larger than most records, so that few are parsed twice
_BETWEEN = " \t\r\n,"


class Record(BaseModel):
    """A record of a published file; what the reader does not need is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


Read = TypeVar("Read", bound=Record)


def file_sha256(path: Path) -> str:
    """sha256 of the file. Raises BadInput for a file that cannot be read."""
    with _opened(path) as stream:
        return file_digest(stream, "sha256").hexdigest()


def read_records(path: Path, form: type[Read]) -> Iterator[tuple[str, Read]]:
    """Each record with its place, out of a JSON list or JSONL. Raises BadInput with file and place."""
    found = False
    for place, value in _values(path):
        found = True
        yield place, checked(place, value, form)
    if not found:
        raise BadInput(f"{path} holds no record; give the data set's own file")


def single(path: Path, form: type[Read]) -> Read:
    """The one record that a JSON file is. Raises BadInput."""
    return checked(str(path), parsed(str(path), whole(path)), form)


def whole(path: Path) -> str:
    """The text of a file. Raises BadInput."""
    with _opened(path) as stream:
        return _text(path, stream.read())


def moment(text: str, pattern: str, place: str) -> datetime:
    """A time as the data set writes it; it has no zone, so it is taken for UTC. Raises BadInput."""
    try:
        return datetime.strptime(text, pattern).replace(tzinfo=UTC)
    except ValueError as error:
        raise BadInput(f"{place}: the time {text!r} is not written like {pattern}; mend the file") from error


def checked(place: str, value: object, form: type[Read]) -> Read:
    """The value as a record. Raises BadInput with its place and the first field that is wrong."""
    try:
        return form.model_validate(value)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(str(part) for part in problem["loc"]) or "the record"
        raise BadInput(f"{place}: {field}: {problem['msg']}; give the data set's own file") from error


def parsed(place: str, text: str) -> object:
    """The value that a JSON text holds. Raises BadInput with its place."""
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{place} is no JSON: {error}; give the data set's own file") from error
    return value


def lines(path: Path) -> Iterator[tuple[str, str]]:
    """Each line of a text file that is not empty, with its place."""
    with _opened(path) as stream:
        for number, raw in enumerate(stream, start=1):
            text = _text(path, raw)
            if text.strip():
                yield f"{path}, line {number}", text


def _values(path: Path) -> Iterator[tuple[str, object]]:
    with _opened(path) as stream:
        listed = stream.read(_PEEK).removeprefix(BOM_UTF8).lstrip()[:1] == b"["
    if listed:
        yield from _listed(path)
    else:
        for place, text in lines(path):
            yield place, parsed(place, text)


def _listed(path: Path) -> Iterator[tuple[str, object]]:
    """The values of a JSON list, each parsed when it is there in full."""
    decoder, number = json.JSONDecoder(), 0
    with path.open(encoding="utf-8-sig") as stream:
        held = _more(path, stream).lstrip()[1:].lstrip(_BETWEEN)
        while not held.startswith("]"):
            try:
                value, end = decoder.raw_decode(held)
            except json.JSONDecodeError as error:
                more = _more(path, stream)
                if not more:
                    place = f"{path}, record {number + 1}"
                    raise BadInput(f"{place} is no JSON: {error}; give the data set's own file") from error
                held = (held + more).lstrip(_BETWEEN)
                continue
            number += 1
            yield f"{path}, record {number}", value
            held = held[end:].lstrip(_BETWEEN)
        if (held[1:] + _more(path, stream)).strip():
            raise BadInput(f"{path} goes on after its list of {number} records; give the data set's own file")


def _more(path: Path, stream: TextIO) -> str:
    try:
        return stream.read(_CHUNK)
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no UTF-8 text ({error}); give the data set's own file") from error


def _text(path: Path, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no UTF-8 text ({error}); give the data set's own file") from error


def _opened(path: Path) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInput(f"cannot read {path} ({error.strerror}); give the data set's own file") from error
