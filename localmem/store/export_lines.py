"""The lines of an export: their fields, and how they are written and read. Does not depend on the database.

A line is accepted only if localmem would write it exactly so: nothing in a file is ignored silently.
"""

import json
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from localmem.errors import BadInput
from localmem.files import one_line
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
    """A turn of the last session above it."""

    kind: Literal["turn"] = "turn"
    id: str
    role: Role
    speaker: str
    text: str
    time: AwareDatetime


class BatchLine(_Line):
    """Changes that one system made together, in the order of the log."""

    kind: Literal["batch"] = "batch"
    system: str
    of: Literal["exchange", "session"]
    cause: str
    session: str | None
    state: Literal["active", "undone", "superseded"]
    changes: tuple[Annotated[Change, Field(discriminator="type")], ...]


class JobLine(_Line):
    """The state of remembering a session. A running job is written as pending: its process is not exported."""

    kind: Literal["job"] = "job"
    system: str
    session: str
    state: Literal["pending", "done", "failed"]
    attempts: int
    error: str


Line = SessionLine | TurnLine | BatchLine | JobLine
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def write_line(line: Header | Line) -> str:
    """The canonical text of the line, without a line end."""
    return line.model_dump_json()


def parse_line(text: str) -> Line:
    """Raises BadInput, without the place."""
    try:
        line = _LINE.validate_json(text)
    except ValidationError as error:
        raise BadInput(one_line(error)) from error
    canonical = write_line(line)
    if canonical != text and json.loads(canonical) != json.loads(text):
        raise BadInput(f"not as localmem writes it ({text[:80]!r}); import a file that `localmem export` wrote")
    return line


def parse_header(text: str) -> Header:
    """Raises BadInput, also for the format of a later version."""
    try:
        header = Header.model_validate_json(text)
    except ValidationError as error:
        raise BadInput(f"not the first line of a localmem export ({one_line(error)})") from error
    if header.format > FORMAT:
        raise BadInput(f"format {header.format} is newer than {FORMAT}, the one of this version; update localmem")
    return header
