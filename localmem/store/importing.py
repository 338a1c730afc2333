"""Imports an exported user: all of the file or nothing, and an error names the line.

A file with the content that the store already has changes nothing. A user with any other memory is left alone.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection, insert

from localmem.errors import BadInput
from localmem.store.change_log import Batch, ChangeLog
from localmem.store.export import (
    BatchLine,
    Header,
    JobLine,
    Line,
    SessionLine,
    TurnLine,
    export_lines,
    parse_header,
    parse_line,
    write_line,
)
from localmem.store.records import ImportSummary
from localmem.store.schema import jobs, sessions, turns
from localmem.store.serialization import check_text, to_micros, zone_of
from localmem.store.sessions import users


@dataclass(slots=True)
class ExportFile:
    """A consistent file. `texts` are the canonical lines; turns come with their session, batches with their line."""

    name: str
    user: str
    texts: list[str]
    sessions: list[SessionLine] = field(default_factory=list)
    turns: list[tuple[str, TurnLine]] = field(default_factory=list)
    batches: list[tuple[int, BatchLine]] = field(default_factory=list)
    jobs: list[JobLine] = field(default_factory=list)


def read_export(lines: Iterable[str], name: str, user: str | None) -> ExportFile:
    """The file `name`, for `user` or the user in its header. Raises BadInput with the line number."""
    numbered = ((number, text.strip()) for number, text in enumerate(lines, 1))
    non_blank = ((number, text) for number, text in numbered if text)
    number, first = next(non_blank, (1, ""))
    with _at(name, number):
        header = parse_header(first)
    target = user or header.user
    file = ExportFile(name, target, [write_line(Header(user=target))])
    reader = _Reader(file)
    for number, text in non_blank:
        with _at(name, number):
            check_text(text)
            line = parse_line(text)
            reader.add(number, line)
            file.texts.append(write_line(line))
    return file


def import_user(connection: Connection, log: ChangeLog, file: ExportFile) -> ImportSummary:
    """Write the file. Raises BadInput for a user with another memory, and for changes that cannot be applied."""
    counts = len(file.sessions), len(file.turns), len(file.batches)
    if file.user in users(connection):
        if list(export_lines(connection, log, file.user)) == file.texts:
            return ImportSummary(file.user, *counts, new=False)
        raise BadInput(f"user {file.user!r} already has a memory; import {file.name} for another user with --user")
    _write_sessions(connection, file)
    for number, line in file.batches:
        batch = Batch(file.user, line.system, line.of, line.cause, line.session, line.changes)
        with _at(file.name, number):
            log.write(connection, batch, line.state)
    for system in sorted({line.system for _, line in file.batches}):
        log.advance(connection, file.user, system)
    if file.jobs:
        rows = [{"user": file.user, "owner": "", **job.model_dump(exclude={"kind"})} for job in file.jobs]
        connection.execute(insert(jobs), rows)
    return ImportSummary(file.user, *counts, new=True)


class _Reader:
    """Adds lines to a file and checks that each is consistent with the lines before it."""

    def __init__(self, file: ExportFile) -> None:
        self._file = file
        self._sessions: dict[str, SessionLine] = {}
        self._last: TurnLine | None = None
        self._keys: set[tuple[str, ...]] = set()

    def add(self, number: int, line: Line) -> None:
        """Raises BadInput."""
        match line:
            case SessionLine():
                self._add_session(line)
            case TurnLine():
                self._add_turn(line)
            case BatchLine():
                self._add_batch(number, line)
            case JobLine():
                self._add_job(line)

    def _add_session(self, line: SessionLine) -> None:
        self._require_unique("session", line.id)
        self._sessions[line.id] = line
        self._last = None
        self._file.sessions.append(line)

    def _add_turn(self, line: TurnLine) -> None:
        if not self._file.sessions:
            raise BadInput(f"turn {line.id!r} comes before any session")
        if self._last is not None and line.time < self._last.time:
            raise BadInput(f"turn {line.id!r} is older than the turn before it")
        self._require_unique("turn", line.id)
        zone_of(line.time)
        self._last = line
        self._file.turns.append((self._file.sessions[-1].id, line))

    def _add_batch(self, number: int, line: BatchLine) -> None:
        if line.session is not None:
            self._session(line.session)
        if line.state == "active":
            self._require_unique("batch", line.system, line.of, line.cause)
        self._file.batches.append((number, line))

    def _add_job(self, line: JobLine) -> None:
        if self._session(line.session).state != "closed":
            raise BadInput(f"a job for session {line.session!r}, which is not closed")
        self._require_unique("job", line.system, line.session)
        self._file.jobs.append(line)

    def _session(self, session_id: str) -> SessionLine:
        if session_id not in self._sessions:
            raise BadInput(f"there is no session {session_id!r} in this file")
        return self._sessions[session_id]

    def _require_unique(self, *key: str) -> None:
        if key in self._keys:
            raise BadInput(f"{' '.join(key)} occurs twice")
        self._keys.add(key)


@contextmanager
def _at(name: str, number: int) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{name} line {number}: {error}") from error


def _write_sessions(connection: Connection, file: ExportFile) -> None:
    """Sessions, in the order of the file, and their turns."""
    positions = {line.id: 0 for line in file.sessions}
    turn_rows: list[dict[str, object]] = []
    for session, turn in file.turns:
        values = turn.model_dump(exclude={"kind", "time"})
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
        for line in file.sessions
    ]
    for table, rows in ((sessions, session_rows), (turns, turn_rows)):
        if rows:
            connection.execute(insert(table), rows)
