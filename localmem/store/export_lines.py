"""The lines of an export: what each holds, and how it is written and read. Knows no database.

A line is read only if it would be written again just so: nothing that a file says is dropped in silence.
"""

import json
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from localmem.errors import BadInput
from localmem.types import Change, Role

FORMAT = 1


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Header(_Line):
    """The first line."""

    localmem: Literal["export"] = "export"
    format: int = FORMAT
    user: str


class SessionLine(_Line):
    """A session; its turns follow."""

    kind: Literal["session"] = "session"
    id: str
    state: Literal["open", "closed"]
    started: AwareDatetime
    ended: AwareDatetime


class TurnLine(_Line):
    """A turn of the session above it."""

    kind: Literal["turn"] = "turn"
    id: str
    role: Role
    speaker: str
    text: str
    time: AwareDatetime


class BatchLine(_Line):
    """Changes that one system made at once, in the order of the log."""

    kind: Literal["batch"] = "batch"
    system: str
    of: Literal["exchange", "session"]
    cause: str
    session: str | None
    state: Literal["active", "undone", "superseded"]
    changes: tuple[Annotated[Change, Field(discriminator="type")], ...]


class JobLine(_Line):
    """How remembering a session stands. A running job is written as pending: its process is not exported."""

    kind: Literal["job"] = "job"
    system: str
    session: str
    state: Literal["pending", "done", "failed"]
    attempts: int
    error: str


Line = SessionLine | TurnLine | BatchLine | JobLine


class LineCodec:
    """Lines to texts and back."""

    def __init__(self) -> None:
        self._adapter: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])

    def read(self, text: str) -> Line:
        """Raises BadInput, without a place."""
        try:
            line = self._adapter.validate_json(text)
        except ValidationError as error:
            raise BadInput(_reason(error)) from error
        _check_whole(line, text)
        return line

    def read_header(self, text: str) -> Header:
        """Raises BadInput, also for a format of later versions."""
        try:
            header = Header.model_validate_json(text)
        except ValidationError as error:
            raise BadInput(f"not the head of a localmem export ({_reason(error)})") from error
        if header.format > FORMAT:
            raise BadInput(f"format {header.format} is newer than this localmem reads ({FORMAT}); update localmem")
        return header


def write(line: Header | Line) -> str:
    """The line's one text, without a line end."""
    return line.model_dump_json()


def _check_whole(line: Line, text: str) -> None:
    written = write(line)
    if written != text and json.loads(written) != json.loads(text):
        raise BadInput(f"not as localmem writes it ({text[:80]!r}); import a file that `localmem export` made")


def _reason(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
