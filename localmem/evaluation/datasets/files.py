"""Reading a data set's file: JSON or JSONL into checked records. A bad record is one line with file and place."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from localmem.errors import BadInput


class Record(BaseModel):
    """A record of a published file; what the reader does not need is passed over."""

    model_config = ConfigDict(extra="ignore", frozen=True, coerce_numbers_to_str=True)


Read = TypeVar("Read", bound=Record)


def digest(path: Path) -> str:
    """sha256 of the file. Raises BadInput for a file that cannot be read."""
    return sha256(_bytes(path)).hexdigest()


def records(path: Path, form: type[Read]) -> list[tuple[str, Read]]:
    """Each record with its place, out of a JSON list or JSONL. Raises BadInput with file and place."""
    found = [(place, _checked(place, value, form)) for place, value in _values(path)]
    if not found:
        raise BadInput(f"{path} holds no record; give the data set's own file")
    return found


def moment(text: str, pattern: str, place: str) -> datetime:
    """A time as the data set writes it; it has no zone, so it is taken for UTC. Raises BadInput."""
    try:
        return datetime.strptime(text, pattern).replace(tzinfo=UTC)
    except ValueError as error:
        raise BadInput(f"{place}: the time {text!r} is not written like {pattern}; mend the file") from error


def _values(path: Path) -> Iterator[tuple[str, object]]:
    try:
        text = _bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no UTF-8 text ({error}); give the data set's own file") from error
    if not text.lstrip().startswith("["):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield f"{path}, line {number}", _parsed(f"{path}, line {number}", line)
        return
    for number, value in enumerate(_listed(path, text), start=1):
        yield f"{path}, record {number}", value


def _listed(path: Path, text: str) -> list[object]:
    values = _parsed(str(path), text)
    return values if isinstance(values, list) else []


def _parsed(place: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(f"{place} is no JSON: {error}; give the data set's own file") from error


def _checked(place: str, value: object, form: type[Read]) -> Read:
    try:
        return form.model_validate(value)
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(str(part) for part in problem["loc"]) or "the record"
        raise BadInput(f"{place}: {field}: {problem['msg']}; give the data set's own file") from error


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {path} ({error.strerror}); give the data set's own file") from error
