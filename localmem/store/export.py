"""Exports one user as JSON lines: the log itself, so nothing is lost and a round trip gives the same bytes.

A header, then sessions in the order they were opened, each with its turns, then the batches of all systems in order,
then jobs. Versions, owners of running jobs and vectors are not exported: they belong to a store, not to a user. A line
is accepted back only if localmem would write it exactly so: nothing in a file is ignored silently.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from sqlalchemy import Connection, and_, select

from localmem.errors import BadInput
from localmem.files import one_line
from localmem.store.change_log import ChangeLog
from localmem.store.schema import batches, jobs, sessions, turns
from localmem.store.serialization import from_micros
from localmem.store.sessions import no_user, to_turn, users
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


def export_lines(connection: Connection, log: ChangeLog, user: str) -> Iterator[str]:
    """The user's lines, without line ends. Raises NotFound."""
    if user not in users(connection):
        raise no_user(user)
    yield write_line(Header(user=user))
    yield from _session_lines(connection, user)
    yield from _batch_lines(connection, log, user)
    yield from _job_lines(connection, user)


def _session_lines(connection: Connection, user: str) -> Iterator[str]:
    of_user = select(sessions).where(sessions.c.user == user).order_by(sessions.c.number)
    in_order = select(turns).where(turns.c.user == user).order_by(turns.c.position)
    for row in connection.execute(of_user).mappings().all():
        started, ended = from_micros(row["started"]), from_micros(row["ended"])
        yield write_line(SessionLine(id=row["id"], state=row["state"], started=started, ended=ended))
        for turn_row in connection.execute(in_order.where(turns.c.session == row["id"])).mappings():
            turn = to_turn(turn_row)
            yield write_line(TurnLine(id=turn.id, role=turn.role, speaker=turn.speaker, text=turn.text, time=turn.time))


def _batch_lines(connection: Connection, log: ChangeLog, user: str) -> Iterator[str]:
    of_user = select(batches).where(batches.c.user == user).order_by(batches.c.number)
    for row in connection.execute(of_user).mappings().all():
        yield write_line(
            BatchLine(
                system=row["system"],
                of=row["kind"],
                cause=row["cause"],
                session=row["session"],
                state=row["state"],
                changes=log.of_batch(connection, user, row["number"]),
            )
        )


def _job_lines(connection: Connection, user: str) -> Iterator[str]:
    of_session = and_(sessions.c.user == jobs.c.user, sessions.c.id == jobs.c.session)
    query = select(jobs).select_from(jobs.join(sessions, of_session)).where(jobs.c.user == user)
    for row in connection.execute(query.order_by(sessions.c.number, jobs.c.system)).mappings():
        yield write_line(
            JobLine(
                system=row["system"],
                session=row["session"],
                state="pending" if row["state"] == "running" else row["state"],
                attempts=row["attempts"],
                error=row["error"],
            )
        )
