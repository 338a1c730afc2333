"""Writes to the database: appends to the raw log and all other changes, for many users in one transaction.

An append is checked against the stored sessions before anything is written, so a refused request does not affect the
others of its transaction. A batch costs two reads and at most three writes, however many users append.

Group commit: writes that many threads request at the same moment share one transaction.

A durable commit costs one sync of the disk, a few milliseconds on an SSD, and SQLite admits one writer at a time. With
a transaction for each request, a hundred users who speak at once would wait for a hundred syncs in a row. Here one
thread writes for all that wait, so they share a sync, and those that arrive meanwhile form the next batch (`batching`).

Sharing must not couple requests: one that is refused may not undo its neighbours. Appends, the frequent kind, are
checked in memory before anything is written and so never fail in the database. Any other operation runs inside a
savepoint, which costs two more statements and rolls back alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, cast

from sqlalchemy import Connection, bindparam, insert, update

from localmem.batching import Batched
from localmem.errors import BadInput, Conflict, LocalmemError, NotFound, OutOfOrder, PartialFailure
from localmem.store.database import Database
from localmem.store.schema import sessions, turns
from localmem.store.serialization import check_text, from_micros, to_micros, zone_of
from localmem.types import Turn

T = TypeVar("T")
Key = tuple[str, str]
Operation = Callable[[Connection], object]

# Requests in one transaction: enough for a busy server, few enough that the first one does not wait long.
_LIMIT = 256

# Attempts at a transaction that conflicts with one of another server.
_TRIES = 5

# Keys that one statement looks up. Only a few sizes exist, so that the driver finds its prepared statements again; a
# lookup is padded to the next size with its last key.
_SIZES = (1, 8, 32, 128, 256)


class TurnRow(NamedTuple):
    """A turn as columns, in the order of the table."""

    id: str
    role: str
    speaker: str
    text: str
    time: int
    zone: int


@dataclass(frozen=True, slots=True)
class Append:
    """Turns of one session to write, all or none; with `after` only while this turn of the user is in the log."""

    user: str
    session: str
    rows: tuple[TurnRow, ...]
    after: str = ""


@dataclass(slots=True)
class _SessionEnd:
    """The end of a session while a batch is processed. `position` is that of the next turn."""

    state: str
    position: int
    ended: int
    started: int = 0
    stored: bool = True
    changed: bool = False


@dataclass(frozen=True, slots=True)
class _Batch:
    """What the store has for the requests of a transaction, and the new rows. `contents` are turns by user and id."""

    ends: dict[Key, _SessionEnd]
    contents: dict[Key, tuple[object, ...]]
    rows: list[tuple[object, ...]] = field(default_factory=list)


def require_name(what: str, name: object) -> str:
    """The name, unless it is no text or blank. Raises BadInput: a missing user is an error, never all users."""
    if not isinstance(name, str):
        raise BadInput(f"the name of the {what} is {name!r}; give a text")
    check_text(name)
    if not name.strip():
        raise BadInput(f"the name of the {what} is empty ({name!r}); give a name")
    return name


def to_row(turn: Turn) -> TurnRow:
    """Raises BadInput for a naive time and for unpaired surrogates."""
    check_text(turn.id, turn.speaker, turn.text)
    return TurnRow(turn.id, turn.role, turn.speaker, turn.text, to_micros(turn.time), zone_of(turn.time))


class TurnLog:
    """Writes appends. Its statements are compiled once for the database."""

    def __init__(self, database: Database) -> None:
        self._keys = database.keys
        self._insert_sessions = database.row_statement(
            insert(sessions), ("user", "id", "state", "position", "started", "ended")
        )
        self._extend_sessions = database.row_statement(_EXTEND, ("position", "ended", "of_user", "of_session"))
        self._insert_turns = database.row_statement(insert(turns), ("user", "session", "position", *TurnRow._fields))
        ends, lock = 't."user", t.id, t.state, t.position, t.ended', database.lock_rows
        contents = 't."user", t.id, t.session, t.role, t.speaker, t.text, t.time'
        self._select_ends = {size: _lookup_sql("sessions", ends, size, database.placeholder) + lock for size in _SIZES}
        self._select_turns = {size: _lookup_sql("turns", contents, size, database.placeholder) for size in _SIZES}

    def append(self, connection: Connection, requests: Sequence[Append]) -> list[LocalmemError | None]:
        """Write the requests. The result is one entry for each: None, or the error by which it was refused."""
        if not requests:
            return []
        batch = self._read(connection, requests)
        results = [_accept(batch, request) for request in requests]
        self._write(connection, batch)
        return results

    def _read(self, connection: Connection, requests: Sequence[Append]) -> _Batch:
        session_keys = {(request.user, request.session) for request in requests}
        turn_keys = {(request.user, row.id) for request in requests for row in request.rows}
        turn_keys |= {(request.user, request.after) for request in requests if request.after}
        # In one order, because on PostgreSQL the rows are locked: two servers would wait for one another.
        ends = _lookup(connection, self._select_ends, sorted(session_keys))
        contents = _lookup(connection, self._select_turns, turn_keys)
        return _Batch(
            {(row[0], row[1]): _SessionEnd(row[2], row[3], row[4]) for row in ends},
            {(row[0], row[1]): tuple(row[2:]) for row in self._open_rows(contents)},
        )

    def _open_rows(self, contents: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Stored turns as they were said: the statement is text, so no column type opens what is sealed."""
        keys = self._keys
        if keys is None:
            return iter(contents)
        return ((*place, keys.open(speaker), keys.open(text), time) for *place, speaker, text, time in contents)

    def _seal_rows(self, rows: list[tuple[Any, ...]]) -> list[tuple[object, ...]]:
        keys = self._keys
        if keys is None:
            return rows
        return [
            (user, *place, keys.seal(user, speaker), keys.seal(user, text), time, zone)
            for user, *place, speaker, text, time, zone in rows
        ]

    def _write(self, connection: Connection, batch: _Batch) -> None:
        """Sessions first, because turns refer to them."""
        added, extended = [], []
        for (user, session), end in batch.ends.items():
            if not end.stored:
                added.append((user, session, end.state, end.position, end.started, end.ended))
            elif end.changed:
                extended.append((end.position, end.ended, user, session))
        self._insert_sessions.run(connection, added)
        self._extend_sessions.run(connection, extended)
        self._insert_turns.run(connection, self._seal_rows(batch.rows))


def _accept(batch: _Batch, request: Append) -> LocalmemError | None:
    """Add the new turns of the request to the batch, or return what is wrong with it."""
    try:
        rows = _new_rows(batch.contents, request)
        if rows:
            if request.after and (request.user, request.after) not in batch.contents:
                raise NotFound(f"turn {request.after!r} is no longer in the log, so what follows it is not stored")
            _check_order(request, rows, batch.ends.get((request.user, request.session)))
            _add_rows(batch, request, rows)
    except LocalmemError as error:
        return error
    return None


def _new_rows(contents: Mapping[Key, tuple[object, ...]], request: Append) -> list[TurnRow]:
    new: dict[str, TurnRow] = {}
    for row in request.rows:
        stored = contents.get((request.user, row.id))
        if row.id in new or stored not in (None, _content(request, row)):
            raise BadInput(f"turn id {row.id!r} belongs to another turn; give each turn a unique id")
        if stored is None:
            new[row.id] = row
    return list(new.values())


def _content(request: Append, row: TurnRow) -> tuple[object, ...]:
    """What makes two turns the same turn."""
    return request.session, row.role, row.speaker, row.text, row.time


def _check_order(request: Append, rows: Sequence[TurnRow], end: _SessionEnd | None) -> None:
    if end is not None and end.state != "open":
        raise BadInput(f"session {request.session!r} is closed; start a new session")
    last = rows[0].time if end is None else end.ended
    for row in rows:
        if row.time < last:
            raise OutOfOrder(
                f"turn {row.id!r} of {from_micros(row.time).isoformat()} is older than the turn before it, "
                f"of {from_micros(last).isoformat()}; give turns in chronological order"
            )
        last = row.time


def _add_rows(batch: _Batch, request: Append, rows: Sequence[TurnRow]) -> None:
    key = request.user, request.session
    end = batch.ends.setdefault(key, _SessionEnd("open", 0, 0, rows[0].time, stored=False))
    for row in rows:
        batch.contents[request.user, row.id] = _content(request, row)
        batch.rows.append((request.user, request.session, end.position, *row))
        end.position += 1
    end.ended = rows[-1].time
    end.changed = True


_EXTEND = (
    update(sessions)
    .where(sessions.c.user == bindparam("of_user"), sessions.c.id == bindparam("of_session"))
    .values({sessions.c.position: bindparam("position"), sessions.c.ended: bindparam("ended")})
)


def _lookup(connection: Connection, statements: Mapping[int, str], keys: Iterable[Key]) -> Iterator[Sequence[Any]]:
    """The rows of (user, id) pairs, through the table's index on both."""
    remaining = list(keys)
    while remaining:
        size = next((size for size in _SIZES if size >= len(remaining)), _SIZES[-1])
        part, remaining = remaining[:size], remaining[size:]
        part += part[-1:] * (size - len(part))
        yield from connection.exec_driver_sql(statements[size], tuple(value for key in part for value in key))


def _lookup_sql(table: str, columns: str, size: int, placeholder: str) -> str:
    """A SELECT of `size` keys. SQLite and PostgreSQL both name the columns of VALUES column1 and column2."""
    keys = ", ".join([f"({placeholder}, {placeholder})"] * size)
    return (
        f"SELECT {columns} FROM (VALUES {keys}) AS keys"  # noqa: S608  # names of our own tables and columns
        f' JOIN {table} AS t ON t."user" = keys.column1 AND t.id = keys.column2'
    )


@dataclass(frozen=True, slots=True)
class Derived(Generic[T]):
    """An operation that writes what can be derived again: a power cut may lose it."""

    write: Callable[[Connection], T]

    def __call__(self, connection: Connection) -> T:
        return self.write(connection)


class Writer:
    """The only writer of this process; the lock of the database separates it from other processes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._log = TurnLog(database)
        self._batched: Batched[Append | Operation, object] = Batched(self._write, limit=_LIMIT)

    def append(self, request: Append) -> None:
        """Durable on return. Raises the error by which this request was refused."""
        self._batched([request])

    def run(self, operation: Callable[[Connection], T]) -> T:
        """The result of the operation, once durable. When the operation raises, nothing of it is written.

        Where only Derived operations are waiting, the disk is not waited for.
        """
        return cast(T, self._batched([operation])[0])

    def _write(self, requests: list[Append | Operation]) -> list[object]:
        results = self._with_retries(requests)
        if any(isinstance(result, Exception) for result in results):
            raise PartialFailure(results)
        return results

    def _with_retries(self, requests: list[Append | Operation], tries: int = _TRIES) -> list[object]:
        """A result or an error for each request.

        On PostgreSQL a transaction of another server may insert the same session between our check and our commit.
        The whole batch is then checked and written again: against the new rows the request succeeds, or is refused
        with its own error. On SQLite the write lock is taken before the check, so this does not happen.
        """
        try:
            return self._write_once(requests)
        except Conflict:
            if tries == 1:
                raise
            return self._with_retries(requests, tries - 1)

    def _write_once(self, requests: list[Append | Operation]) -> list[object]:
        appends = [request for request in requests if isinstance(request, Append)]
        durable = not all(isinstance(request, Derived) for request in requests)
        with self._database.write(durable=durable) as connection:
            errors = iter(self._log.append(connection, appends))
            run = _run_isolated if len(requests) > 1 else _run_alone
            return [next(errors) if isinstance(request, Append) else run(connection, request) for request in requests]


def _run_isolated(connection: Connection, operation: Operation) -> object:
    try:
        with connection.begin_nested():
            return operation(connection)
    except LocalmemError as error:
        return error


def _run_alone(connection: Connection, operation: Operation) -> object:
    """As `_run_isolated`, where nothing else is in the transaction: it needs no savepoint."""
    try:
        return operation(connection)
    except LocalmemError as error:
        connection.rollback()
        return error
