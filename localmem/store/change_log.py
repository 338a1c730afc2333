"""The change log of all banks: batches of changes, each written in one transaction, and the version of each bank.

The version of a bank counts the transactions that changed it. A writer states the version it has read; if the bank has
another one by now, that is a Conflict, so two processes never interleave one user's changes. A change that cannot be
applied to the bank never enters the log.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from secrets import randbits
from typing import Literal

from sqlalchemy import ColumnElement, Connection, and_, insert, select

from localmem.bank import Bank
from localmem.errors import Conflict, NotFound
from localmem.store.database import Database
from localmem.store.schema import banks, batches, changes, jobs
from localmem.store.serialization import ChangeSerializer, named_units, to_micros
from localmem.store.sessions import chunks, turns_by_id
from localmem.types import AddUnit, Change, Hide, RefuseText, Restore, RetireUnit, SetNote, Turn, Unit

BatchState = Literal["active", "undone", "superseded"]
Kind = Literal["exchange", "session"]
Refusals = Counter[tuple[str, str]]
"""Refused texts by the name of their prompt and the reason."""

_COLUMNS = ("batch", "position", "user", "system", "type", "time", "unit", "other", "body")

# Of every turn, and so text: SQLAlchemy takes longer over an expression than SQLite to run it. {0} is a parameter.
_VERSION = 'SELECT version FROM banks WHERE "user" = {0} AND system = {0}'
_ADVANCE = 'UPDATE banks SET version = {0} WHERE "user" = {0} AND system = {0} AND version = {0}'
_NEW_BATCH = (
    'INSERT INTO batches ("user", system, kind, cause, state, session) VALUES ({0}, {0}, {0}, {0}, {0},'
    ' COALESCE({0}, (SELECT session FROM turns WHERE "user" = {0} AND id = {0})))'
    " ON CONFLICT DO NOTHING RETURNING number"
)
_ADDITIONS = (
    "SELECT c.body FROM changes AS c JOIN batches AS b ON b.number = c.batch WHERE b.state = 'active'"
    " AND c.\"user\" = {0} AND c.system = {0} AND c.type = 'add_unit' AND c.unit IN "
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes to write together. `cause` is unique among the active batches of the same bank and kind.

    Without a `session`, that of the turn which is the cause, if it is one.
    """

    user: str
    system: str
    kind: Kind
    cause: str
    session: str | None
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A batch of the log; `number` is its position."""

    number: int
    session: str | None
    state: BatchState
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A change that names a unit, and the batch that made it.

    `cause` is the session or the reply turn that the batch came from; `state` says whether the batch is in effect.
    """

    change: Change
    cause: str
    session: str | None
    state: BatchState


@dataclass(frozen=True, slots=True)
class UnitHistory:
    """How a unit came to be: all changes that name it or hid its turns, oldest first, and the turns it came from."""

    unit: Unit
    live: bool
    sources: tuple[Turn, ...]
    events: tuple[Event, ...]


class ChangeLog:
    """Reads and writes the log; a store has one."""

    def __init__(self, database: Database, serializer: ChangeSerializer) -> None:
        self.serializer = serializer
        self.database = database
        self._insert = database.row_statement(insert(changes), _COLUMNS)
        texts = (text.format(database.placeholder) for text in (_VERSION, _ADVANCE, _NEW_BATCH, _ADDITIONS))
        self._version, self._advance, self._new_batch, self._additions = texts

    # -- versions --------------------------------------------------------------------------------------------------

    def version(self, connection: Connection, user: str, system: str) -> int:
        """The version of a bank; 0 before the first write. Its lower half counts the transactions."""
        return int(connection.exec_driver_sql(self._version, (user, system)).scalar() or 0)

    def advance(self, connection: Connection, user: str, system: str, read: int | None = None) -> int:
        """Increment and return the version. Raises Conflict when it is no longer `read` (None: any version)."""
        self.database.notify_change(connection, user)
        current = self.version(connection, user, system) if read is None else read
        exists = select(banks.c.version).where(banks.c.user == user, banks.c.system == system)
        if current == 0 and connection.execute(exists).first() is None:
            first = randbits(30) << 32 | 1  # so that nobody takes it for a bank of the same name that was erased
            connection.execute(insert(banks).values(user=user, system=system, version=first))
            return first
        if connection.exec_driver_sql(self._advance, (current + 1, user, system, current)).rowcount != 1:
            raise Conflict(
                f"the bank of {system} for user {user!r} was changed by another process; run the command again"
            )
        return current + 1

    def systems(self, connection: Connection, user: str) -> list[str]:
        """The systems with a bank or a job of the user."""
        with_bank = select(banks.c.system).where(banks.c.user == user)
        with_job = select(jobs.c.system).where(jobs.c.user == user)
        return sorted(connection.execute(with_bank.union(with_job)).scalars())

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, connection: Connection, batch: Batch, state: BatchState = "active") -> bool:
        """Append a batch; False, and nothing is written, where there is an active one with its cause.

        Raises BadInput for changes that cannot be applied to the bank.
        """
        user, cause = batch.user, batch.cause
        values = (user, batch.system, batch.kind, cause, state, batch.session, user, cause)
        number = connection.exec_driver_sql(self._new_batch, values).scalar()
        if number is None:
            return False
        if state == "active":
            self._check(connection, batch)
        rows: list[tuple[object, ...]] = []
        for position, change in enumerate(batch.changes):
            body, time = self.encode(batch.user, change), to_micros(change.time)
            place = (number, position, batch.user, batch.system)
            rows.append((*place, change.type, time, *named_units(change), body))
        self._insert.run(connection, rows)
        return True

    def encode(self, user: str, change: Change) -> str:
        """The body of a change of this user."""
        return self.database.seal(user, self.serializer.encode(change))

    def _check(self, connection: Connection, batch: Batch) -> None:
        """Apply the changes to a bank of only those units that they name: loading all of it would cost too much."""
        named = {unit for change in batch.changes for unit in named_units(change) if unit is not None}
        additions: list[Change] = []
        for part in chunks(sorted(named)):
            query = f"{self._additions}({', '.join([self.database.placeholder] * len(part))})"
            bodies = connection.exec_driver_sql(query, (batch.user, batch.system, *part)).scalars()
            additions += (self.serializer.decode(self.database.unseal(body)) for body in bodies)
        Bank().apply([*additions, *batch.changes])

    # -- reading ---------------------------------------------------------------------------------------------------

    def changes(self, connection: Connection, user: str, system: str, until: datetime | None = None) -> list[Change]:
        """The active changes in order. With `until`, those made by then that the bank of that time can apply."""
        query = (
            select(changes.c.body)
            .select_from(batches.join(changes, changes.c.batch == batches.c.number))
            .where(of_bank(user, system))
            .order_by(batches.c.number, changes.c.position)
        )
        if until is None:
            return list(map(self.serializer.decode, connection.execute(query).scalars()))
        rows = connection.execute(query.where(changes.c.time <= to_micros(until))).scalars()
        return list(_applicable(map(self.serializer.decode, rows)))

    def later_changes(
        self, connection: Connection, user: str, system: str, until: datetime, units: Collection[str]
    ) -> list[Change]:
        """What was done to these units by then, and to notes and turns; without additions and links."""
        query = (
            select(changes.c.body)
            .select_from(batches.join(changes, changes.c.batch == batches.c.number))
            .where(of_bank(user, system), changes.c.type.not_in(("add_unit", "add_link", "refuse_text")))
            .where(changes.c.time <= to_micros(until))
            .order_by(batches.c.number, changes.c.position)
        )
        return list(_applicable(map(self.serializer.decode, connection.execute(query).scalars()), units))

    def note_versions(self, connection: Connection, user: str, system: str) -> list[SetNote]:
        """The active texts of all notes, in order."""
        query = (
            select(changes.c.body)
            .select_from(batches.join(changes, changes.c.batch == batches.c.number))
            .where(of_bank(user, system), changes.c.type == "set_note")
            .order_by(batches.c.number, changes.c.position)
        )
        decoded = map(self.serializer.decode, connection.execute(query).scalars())
        return [change for change in decoded if isinstance(change, SetNote)]

    def of_batch(self, connection: Connection, user: str, number: int) -> tuple[Change, ...]:
        """The changes of one batch, in order."""
        query = select(changes.c.body).where(changes.c.user == user, changes.c.batch == number)
        bodies = connection.execute(query.order_by(changes.c.position)).scalars()
        return tuple(map(self.serializer.decode, bodies))

    def batches(
        self, connection: Connection, user: str, system: str, states: Sequence[BatchState] = ("active",)
    ) -> list[LoggedBatch]:
        """The batches in these states, with their changes, in order."""
        query = (
            select(batches.c.number, batches.c.session, batches.c.state, changes.c.body)
            .select_from(batches.outerjoin(changes, changes.c.batch == batches.c.number))
            .where(batches.c.user == user, batches.c.system == system, batches.c.state.in_(states))
            .order_by(batches.c.number, changes.c.position)
        )
        decoded: dict[tuple[int, str | None, BatchState], list[Change]] = {}
        for number, session, state, body in connection.execute(query):
            batch = decoded.setdefault((number, session, state), [])
            if body is not None:
                batch.append(self.serializer.decode(body))
        return [LoggedBatch(*key, tuple(batch)) for key, batch in decoded.items()]


def count_refusals(refusals: Refusals, changes: Iterable[Change]) -> None:
    """Add the texts that these changes refuse to a count."""
    refusals.update((change.prompt, change.reason) for change in changes if isinstance(change, RefuseText))


def of_bank(user: str, system: str) -> ColumnElement[bool]:
    """The condition for the active batches of one bank."""
    return and_(batches.c.user == user, batches.c.system == system, batches.c.state == "active")


def _applicable(log: Iterable[Change], present: Collection[str] = ()) -> Iterator[Change]:
    """The changes without those of units that are not in the bank yet.

    Sessions may be remembered in another order than they took place (a rebuild, an import), so at a past date the log
    may name a unit whose addition carries a later time.
    """
    added = set(present)
    for change in log:
        unit, other = named_units(change)
        if isinstance(change, AddUnit):
            added.add(change.unit.id)
        elif not isinstance(change, SetNote | RefuseText | Hide | Restore):
            ends = {unit, other} if change.type == "add_link" else {unit}
            if not ends <= added:
                continue
        yield change


def unit_history(connection: Connection, log: ChangeLog, user: str, system: str, unit_id: str) -> UnitHistory:
    """How a unit came to be: all changes that name it, with those taken back, and its turns. Raises NotFound."""
    query = (
        select(changes.c.batch, changes.c.position, changes.c.body, batches.c.cause, batches.c.session, batches.c.state)
        .select_from(changes.join(batches, changes.c.batch == batches.c.number))
        .where(changes.c.user == user, changes.c.system == system)
    )

    def read(*conditions: ColumnElement[bool]) -> tuple[Event, ...]:
        rows = {(row[0], row[1]): row for where in conditions for row in connection.execute(query.where(where))}
        return tuple(Event(log.serializer.decode(row[2]), row[3], row[4], row[5]) for _, row in sorted(rows.items()))

    # One query for the unit as subject and one as other end, because each can use an index.
    named = (changes.c.unit == unit_id, changes.c.other == unit_id)
    events = read(*named)
    # The unit as it is in effect, else as it was last before it was taken back.
    last_active = sorted(events, key=lambda event: event.state == "active")
    units = [event.change.unit for event in last_active if isinstance(event.change, AddUnit)]
    unit = next((unit for unit in reversed(units) if unit.id == unit_id), None)
    if unit is None:
        raise no_unit(user, system, unit_id)
    turns = turns_by_id(connection, user, unit.sources)
    hides = and_(changes.c.unit.in_(unit.sources), changes.c.type.in_(("hide", "restore")))
    events = read(*named, hides)
    own = (AddUnit, RetireUnit, Hide, Restore)
    active = [event.change for event in events if event.state == "active" and isinstance(event.change, own)]
    live = Bank().apply(c for c in active if named_units(c)[0] in (unit_id, *unit.sources)).is_live(unit_id)
    sources = tuple(turns[turn] for turn in unit.sources if turn in turns)
    return UnitHistory(unit, live, sources, events)


def no_unit(user: str, system: str, unit_id: str) -> NotFound:
    """The error for a missing unit."""
    return NotFound(f"user {user!r} has no unit {unit_id!r} in {system}; `localmem show` lists the units")
