"""Exports one user as JSON lines and imports them: nothing is lost, and a round trip gives the same bytes.

A header, then sessions in the order they were opened, each with its turns, then the batches of all systems in order,
then jobs. Versions, owners of running jobs and vectors are not exported: they belong to a store, not to a user. A line
is accepted back only if localmem would write it exactly so: nothing in a file is ignored silently.

An import takes all of the file or nothing, and an error names the line. Only sessions that were erased may be left out,
with what was derived from them. A file with the content that the store already has changes nothing. A user with any
other memory is left alone.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from sqlalchemy import Connection, RowMapping, and_, insert, select

from localmem.errors import BadInput
from localmem.files import one_line
from localmem.store.change_log import Batch, ChangeLog
from localmem.store.database import Database
from localmem.store.erase import Eraser
from localmem.store.schema import batches, jobs, sessions, turns
from localmem.store.serialization import StoredChange, check_text, from_micros, to_micros, zone_of
from localmem.store.sessions import no_user, users
from localmem.types import Role

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
    changes: tuple[StoredChange, ...]


class JobLine(_Line):
    """The state of remembering a session. A running job is written as pending: its process is not exported."""

    kind: Literal["job"] = "job"
    system: str
    session: str
    state: Literal["pending", "done", "failed"]
    attempts: int
    error: str


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What an import read; `new` is False when the store already had all of it, `erased` sessions were left out."""

    user: str
    sessions: int
    turns: int
    batches: int
    new: bool
    erased: int = 0


Line = SessionLine | TurnLine | BatchLine | JobLine
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def parse_line(text: str) -> Line:
    """Raises BadInput, without the place."""
    try:
        line = _LINE.validate_json(text)
    except ValidationError as error:
        raise BadInput(one_line(error)) from error
    canonical = line.model_dump_json()
    if canonical != text and json.loads(canonical) != json.loads(text):
        raise BadInput(f"not as localmem writes it ({text[:80]!r}); import a file that `localmem export` wrote")
    return line


def parse_header(text: str) -> Header:
    """Raises BadInput, also for the format of a later version."""
    try:
        header = Header.model_validate_json(text)
    except ValidationError as error:
        cure = "for conversations use `localmem remember`"
        raise BadInput(f"not the first line of a localmem export ({one_line(error)}); {cure}") from error
    if header.format > FORMAT:
        raise BadInput(f"format {header.format} is newer than {FORMAT}, the one of this version; update localmem")
    return header


def export_lines(connection: Connection, log: ChangeLog, user: str) -> Iterator[str]:
    """The user's lines, without line ends. Raises NotFound."""
    if user not in users(connection):
        raise no_user(user)
    yield Header(user=user).model_dump_json()
    in_order = select(turns).where(turns.c.user == user).order_by(turns.c.position)
    of_user = select(sessions).where(sessions.c.user == user).order_by(sessions.c.number)
    for row in connection.execute(of_user).mappings().all():
        yield _write(SessionLine, row, started=from_micros(row["started"]), ended=from_micros(row["ended"]))
        for turn in connection.execute(in_order.where(turns.c.session == row["id"])).mappings():
            yield _write(TurnLine, turn, time=from_micros(turn["time"], turn["zone"]))
    of_user = select(batches).where(batches.c.user == user).order_by(batches.c.number)
    for row in connection.execute(of_user).mappings().all():
        yield _write(BatchLine, row, of=row["kind"], changes=log.of_batch(connection, user, row["number"]))
    of_session = and_(sessions.c.user == jobs.c.user, sessions.c.id == jobs.c.session)
    of_user = select(jobs).select_from(jobs.join(sessions, of_session)).where(jobs.c.user == user)
    for row in connection.execute(of_user.order_by(sessions.c.number, jobs.c.system)).mappings():
        yield _write(JobLine, row, state="pending" if row["state"] == "running" else row["state"])


def _write(form: type[_Line], row: RowMapping, **values: object) -> str:
    """The text of a line with the columns that it has fields for; `values` are in place of columns."""
    fields = {name: value for name, value in {**row, **values}.items() if name in form.model_fields}
    return form.model_validate({**fields, "kind": form.model_fields["kind"].default}).model_dump_json()


@dataclass(slots=True)
class ExportFile:
    """A consistent file. `texts` are the canonical lines; turns come with their session, batches with their line."""

    name: str
    user: str
    texts: list[str]
    sessions: dict[str, SessionLine] = field(default_factory=dict)
    turns: list[tuple[str, TurnLine]] = field(default_factory=list)
    batches: list[tuple[int, BatchLine]] = field(default_factory=list)
    jobs: list[JobLine] = field(default_factory=list)
    keys: set[tuple[str, ...]] = field(default_factory=set)

    def add(self, number: int, line: Line) -> None:
        """Add a line that is consistent with the lines before it. Raises BadInput."""
        match line:
            case SessionLine():
                self._require_unique("session", line.id)
                self.sessions[line.id] = line
            case TurnLine():
                self._add_turn(line)
            case BatchLine():
                if line.session is not None:
                    self._session(line.session)
                if line.state == "active":
                    self._require_unique("batch", line.system, line.of, line.cause)
                self.batches.append((number, line))
            case JobLine():
                if self._session(line.session).state != "closed":
                    raise BadInput(f"a job for session {line.session!r}, which is not closed")
                self._require_unique("job", line.system, line.session)
                self.jobs.append(line)
        self.texts.append(line.model_dump_json())

    def _add_turn(self, line: TurnLine) -> None:
        if not self.sessions:
            raise BadInput(f"turn {line.id!r} comes before any session")
        session = next(reversed(self.sessions))
        previous = self.turns[-1] if self.turns else None
        if previous is not None and previous[0] == session and line.time < previous[1].time:
            raise BadInput(f"turn {line.id!r} is older than the turn before it")
        self._require_unique("turn", line.id)
        zone_of(line.time)
        self.turns.append((session, line))

    def _session(self, session_id: str) -> SessionLine:
        if session_id not in self.sessions:
            raise BadInput(f"there is no session {session_id!r} in this file")
        return self.sessions[session_id]

    def _require_unique(self, *key: str) -> None:
        if key in self.keys:
            raise BadInput(f"{' '.join(key)} occurs twice")
        self.keys.add(key)


def read_export(lines: Iterable[str], name: str, user: str | None) -> ExportFile:
    """The file `name`, for `user` or the user in its header. Raises BadInput with the line number."""
    numbered = ((number, text.strip()) for number, text in enumerate(lines, 1))
    non_blank = ((number, text) for number, text in numbered if text)
    number, first = next(non_blank, (1, ""))
    with _at(name, number):
        header = parse_header(first)
    target = user or header.user
    file = ExportFile(name, target, [Header(user=target).model_dump_json()])
    for number, text in non_blank:
        with _at(name, number):
            check_text(text)
            file.add(number, parse_line(text))
    return file


def import_user(
    connection: Connection, log: ChangeLog, file: ExportFile, erased: Collection[str] = ()
) -> ImportSummary:
    """Write the file, but for the `erased` sessions and what was derived from them.

    Raises BadInput for a user with another memory, and for changes that cannot be applied.
    """
    counts = len(file.sessions), len(file.turns), len(file.batches)
    if file.user in users(connection):
        if list(export_lines(connection, log, file.user)) == file.texts:
            return ImportSummary(file.user, *counts, new=False)
        raise BadInput(f"user {file.user!r} already has a memory; import {file.name} for another user with --user")
    _write_sessions(connection, log.database, file)
    for number, line in file.batches:
        batch = Batch(file.user, line.system, line.of, line.cause, line.session, line.changes)
        with _at(file.name, number):
            log.write(connection, batch, line.state)
    for system in sorted({line.system for _, line in file.batches}):
        log.advance(connection, file.user, system)
    if file.jobs:
        job_rows = [{"user": file.user, "owner": "", **job.model_dump(exclude={"kind"})} for job in file.jobs]
        connection.execute(insert(jobs), job_rows)
    eraser = Eraser(connection, log, file.user)
    for session in erased:  # once all is there, because other sessions' changes may be derived from them
        eraser.erase_session(session)
    rows = eraser.rows
    remaining = counts[0] - rows["sessions"], counts[1] - rows["turns"], counts[2] - rows["batches"]
    return ImportSummary(file.user, *remaining, new=True, erased=len(erased))


@contextmanager
def _at(name: str, number: int) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{name} line {number}: {error}") from error


def _write_sessions(connection: Connection, database: Database, file: ExportFile) -> None:
    """Sessions, in the order of the file, and their turns."""
    positions = dict.fromkeys(file.sessions, 0)
    turn_rows: list[dict[str, object]] = []
    for session, turn in file.turns:
        values = turn.model_dump(exclude={"kind", "time"})
        values |= {name: database.seal(file.user, values[name]) for name in ("speaker", "text")}
        time = {"time": to_micros(turn.time), "zone": zone_of(turn.time)}
        turn_rows.append({"user": file.user, "session": session, "position": positions[session], **values, **time})
        positions[session] += 1
    session_rows = [
        {
            **line.model_dump(include={"id", "state"}),
            "user": file.user,
            "position": positions[line.id],
            "started": to_micros(line.started),
            "ended": to_micros(line.ended),
        }
        for line in file.sessions.values()
    ]
    for table, rows in ((sessions, session_rows), (turns, turn_rows)):
        if rows:
            connection.execute(insert(table), rows)
