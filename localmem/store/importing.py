"""Import of an exported user: all of the file or nothing, and a bad line is named by its number.

A file that says what the store holds already changes nothing; a user who has another memory is left alone.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sqlalchemy import Connection, insert

from localmem.errors import BadInput
from localmem.store.change_log import BankLog, Batch
from localmem.store.export import export_lines
from localmem.store.export_lines import BatchLine, Header, JobLine, Line, LineCodec, SessionLine, TurnLine, write
from localmem.store.schema import jobs, sessions, turns
from localmem.store.serialization import check_text, to_micros, zone_of
from localmem.store.sessions import users


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import brought; `new` is False for a file whose content was there already."""

    user: str
    sessions: int
    turns: int
    batches: int
    new: bool


@dataclass(slots=True)
class Parsed:
    """A file that is sound in itself; each line with its number."""

    name: str
    user: str
    texts: list[str]
    sessions: list[SessionLine] = field(default_factory=list)
    turns: list[tuple[str, TurnLine]] = field(default_factory=list)
    batches: list[tuple[int, BatchLine]] = field(default_factory=list)
    jobs: list[JobLine] = field(default_factory=list)


def parse(lines: Iterable[str], name: str, user: str | None) -> Parsed:
    """The file `name`, for `user` or the user it was made of. Raises BadInput with the line's number."""
    numbered = ((number, text.strip()) for number, text in enumerate(lines, 1))
    filled = ((number, text) for number, text in numbered if text)
    codec = LineCodec()
    number, head = next(filled, (1, ""))
    with _at(name, number):
        header = codec.read_header(head)
    target = user or header.user
    found = Parsed(name, target, [write(Header(user=target))])
    check = _Check(found)
    for number, text in filled:
        with _at(name, number):
            check_text(text)
            line = codec.read(text)
            check.take(number, line)
            found.texts.append(write(line))
    return found


def restore(connection: Connection, log: BankLog, file: Parsed) -> Imported:
    """Write the file. Raises BadInput for a user who has another memory, and for changes that cannot be applied."""
    counts = len(file.sessions), len(file.turns), len(file.batches)
    if file.user in users(connection):
        if list(export_lines(connection, log, file.user)) == file.texts:
            return Imported(file.user, *counts, new=False)
        raise BadInput(f"user {file.user!r} has a memory already; import {file.name} for another with --user")
    _write_log(connection, file)
    for number, line in file.batches:
        with _at(file.name, number):
            log.write(
                connection, Batch(file.user, line.system, line.of, line.cause, line.session, line.changes), line.state
            )
    for system in sorted({line.system for _, line in file.batches}):
        log.advance(connection, file.user, system)
    if file.jobs:
        rows = [{"user": file.user, "owner": "", **job.model_dump(exclude={"kind"})} for job in file.jobs]
        connection.execute(insert(jobs), rows)
    return Imported(file.user, *counts, new=True)


class _Check:
    """What a line must fit to: the lines before it."""

    def __init__(self, file: Parsed) -> None:
        self._file = file
        self._sessions: dict[str, SessionLine] = {}
        self._last: TurnLine | None = None
        self._seen: set[tuple[str, ...]] = set()

    def take(self, number: int, line: Line) -> None:
        """Keep the line. Raises BadInput."""
        match line:
            case SessionLine():
                self._session(line)
            case TurnLine():
                self._turn(line)
            case BatchLine():
                self._batch(number, line)
            case JobLine():
                self._job(line)

    def _session(self, line: SessionLine) -> None:
        self._once("session", line.id)
        self._sessions[line.id] = line
        self._last = None
        self._file.sessions.append(line)

    def _turn(self, line: TurnLine) -> None:
        if not self._file.sessions:
            raise BadInput(f"turn {line.id!r} stands before any session")
        if self._last is not None and line.time < self._last.time:
            raise BadInput(f"turn {line.id!r} is older than the one before it")
        self._once("turn", line.id)
        zone_of(line.time)
        self._last = line
        self._file.turns.append((self._file.sessions[-1].id, line))

    def _batch(self, number: int, line: BatchLine) -> None:
        if line.session is not None:
            self._known(line.session)
        if line.state == "active":
            self._once("batch", line.system, line.of, line.cause)
        self._file.batches.append((number, line))

    def _job(self, line: JobLine) -> None:
        if self._known(line.session).state != "closed":
            raise BadInput(f"a job for session {line.session!r}, which is not closed")
        self._once("job", line.system, line.session)
        self._file.jobs.append(line)

    def _known(self, session_id: str) -> SessionLine:
        if session_id not in self._sessions:
            raise BadInput(f"there is no session {session_id!r} in this file")
        return self._sessions[session_id]

    def _once(self, *key: str) -> None:
        if key in self._seen:
            raise BadInput(f"{' '.join(key)} comes twice")
        self._seen.add(key)


@contextmanager
def _at(name: str, number: int) -> Iterator[None]:
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{name} line {number}: {error}") from error


def _write_log(connection: Connection, file: Parsed) -> None:
    """Sessions, in the order of the file, and their turns."""
    positions = {line.id: 0 for line in file.sessions}
    said: list[dict[str, object]] = []
    for session, line in file.turns:
        values = line.model_dump(exclude={"kind", "time"})
        time = {"time": to_micros(line.time), "zone": zone_of(line.time)}
        said.append({"user": file.user, "session": session, "position": positions[session], **values, **time})
        positions[session] += 1
    held = [_session_row(file.user, line, positions[line.id]) for line in file.sessions]
    for table, rows in ((sessions, held), (turns, said)):
        if rows:
            connection.execute(insert(table), rows)


def _session_row(user: str, line: SessionLine, position: int) -> dict[str, object]:
    return {
        "user": user,
        "id": line.id,
        "state": line.state,
        "position": position,
        "started": to_micros(line.started),
        "ended": to_micros(line.ended),
    }
