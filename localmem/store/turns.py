"""The raw log's way in: turns appended by many users at once.

An append is checked against what the store holds before anything is written, so one refused request leaves the others
of its transaction alone. Costs two reads and two or three writes however many users append.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, update

from localmem.errors import BadInput, LocalmemError, OutOfOrder
from localmem.store.database import Database
from localmem.store.schema import sessions, turns
from localmem.store.serialization import check_text, from_micros, to_micros, zone_of
from localmem.types import Turn

Key = tuple[str, str]

# Keys looked up by one statement; it is written for a few sizes only, so that the driver knows it already.
_SIZES = (1, 8, 32, 128, 256)


class TurnRow(NamedTuple):
    """A turn as columns, in the table's order."""

    id: str
    role: str
    speaker: str
    text: str
    time: int
    zone: int


@dataclass(frozen=True, slots=True)
class Append:
    """Turns of one session to be written, all or none."""

    user: str
    session: str
    rows: tuple[TurnRow, ...]


@dataclass(slots=True)
class _Head:
    """The end of a session, as it stands while a batch is worked through."""

    state: str
    position: int
    ended: int
    started: int = 0
    stored: bool = True
    touched: bool = False


@dataclass(frozen=True, slots=True)
class _Batch:
    """What the store holds for the requests of one transaction, and the rows that they add to it."""

    heads: dict[Key, _Head]
    held: dict[Key, tuple[object, ...]]
    rows: list[tuple[object, ...]] = field(default_factory=list)


def named(what: str, name: str) -> str:
    """The name, if it is one. A missing user is an error, never everyone."""
    if not name.strip():
        raise BadInput(f"no {what} is given ({name!r}); name one")
    return name


def to_row(turn: Turn) -> TurnRow:
    """Raises BadInput for a naive time and for half characters."""
    check_text(turn.id, turn.speaker, turn.text)
    return TurnRow(turn.id, turn.role, turn.speaker, turn.text, to_micros(turn.time), zone_of(turn.time))


class TurnLog:
    """Writes appends; its statements are made once for the database."""

    def __init__(self, database: Database) -> None:
        self._open = database.many(insert(sessions), ("user", "id", "state", "position", "started", "ended"))
        self._grow = database.many(_GROW, ("position", "ended", "of_user", "of_session"))
        self._add = database.many(insert(turns), ("user", "session", "position", *TurnRow._fields))
        heads = 't."user", t.id, t.state, t.position, t.ended'
        held = 't."user", t.id, t.session, t.role, t.speaker, t.text, t.time'
        self._heads = {size: _pairs("sessions", heads, size, database.mark) for size in _SIZES}
        self._held = {size: _pairs("turns", held, size, database.mark) for size in _SIZES}

    def append(self, connection: Connection, requests: Sequence[Append]) -> list[LocalmemError | None]:
        """Write the requests; for each None, or why it was refused."""
        if not requests:
            return []
        batch = self._read(connection, requests)
        results = [_take(batch, request) for request in requests]
        self._write(connection, batch)
        return results

    def _read(self, connection: Connection, requests: Sequence[Append]) -> _Batch:
        sessions_of = {(item.user, item.session) for item in requests}
        turns_of = {(item.user, row.id) for item in requests for row in item.rows}
        return _Batch(
            {(row[0], row[1]): _Head(row[2], row[3], row[4]) for row in _lookup(connection, self._heads, sessions_of)},
            {(row[0], row[1]): tuple(row[2:]) for row in _lookup(connection, self._held, turns_of)},
        )

    def _write(self, connection: Connection, batch: _Batch) -> None:
        """Sessions first: turns refer to them."""
        fresh, grown = [], []
        for (user, session), head in batch.heads.items():
            if not head.stored:
                fresh.append((user, session, head.state, head.position, head.started, head.ended))
            elif head.touched:
                grown.append((head.position, head.ended, user, session))
        self._open.run(connection, fresh)
        self._grow.run(connection, grown)
        self._add.run(connection, batch.rows)


def _take(batch: _Batch, request: Append) -> LocalmemError | None:
    """Note the request's new turns, or say what is wrong with it."""
    try:
        new = _new(batch.held, request)
        if new:
            _check_order(request, new, batch.heads.get((request.user, request.session)))
            _accept(batch, request, new)
    except LocalmemError as error:
        return error
    return None


def _new(held: Mapping[Key, tuple[object, ...]], request: Append) -> list[TurnRow]:
    new: dict[str, TurnRow] = {}
    for row in request.rows:
        before = held.get((request.user, row.id))
        if row.id in new or before not in (None, _content(request, row)):
            raise BadInput(f"turn id {row.id!r} is taken by another turn; give each turn an id of its own")
        if before is None:
            new[row.id] = row
    return list(new.values())


def _content(request: Append, row: TurnRow) -> tuple[object, ...]:
    """What makes a turn the same turn."""
    return request.session, row.role, row.speaker, row.text, row.time


def _check_order(request: Append, new: Sequence[TurnRow], head: _Head | None) -> None:
    if head is not None and head.state != "open":
        raise BadInput(f"session {request.session!r} is closed; say it in a new session")
    last = new[0].time if head is None else head.ended
    for row in new:
        if row.time < last:
            raise OutOfOrder(
                f"turn {row.id!r} of {from_micros(row.time).isoformat()} is older than the one before it, "
                f"of {from_micros(last).isoformat()}; give turns in the order they were said"
            )
        last = row.time


def _accept(batch: _Batch, request: Append, new: Sequence[TurnRow]) -> None:
    key = request.user, request.session
    head = batch.heads.setdefault(key, _Head("open", 0, 0, new[0].time, stored=False))
    for row in new:
        batch.held[request.user, row.id] = _content(request, row)
        batch.rows.append((request.user, request.session, head.position, *row))
        head.position += 1
    head.ended = new[-1].time
    head.touched = True


_GROW = (
    update(sessions)
    .where(sessions.c.user == bindparam("of_user"), sessions.c.id == bindparam("of_session"))
    .values({sessions.c.position: bindparam("position"), sessions.c.ended: bindparam("ended")})
)


def _lookup(connection: Connection, statements: Mapping[int, str], keys: Iterable[Key]) -> Iterator[Sequence[Any]]:
    """The rows of pairs (user, id), through the table's index on both."""
    todo = list(keys)
    while todo:
        size = next((size for size in _SIZES if size >= len(todo)), _SIZES[-1])
        part, todo = todo[:size], todo[size:]
        part += part[-1:] * (size - len(part))
        yield from connection.exec_driver_sql(statements[size], tuple(value for key in part for value in key))


def _pairs(table: str, columns: str, size: int, mark: str) -> str:
    """SQLite and PostgreSQL both call the columns of VALUES column1 and column2."""
    keys = ", ".join([f"({mark}, {mark})"] * size)
    return (
        f"SELECT {columns} FROM (VALUES {keys}) AS keys"  # noqa: S608  # names of our own tables and columns
        f' JOIN {table} AS t ON t."user" = keys.column1 AND t.id = keys.column2'
    )
