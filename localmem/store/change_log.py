"""The log of a bank: batches of changes, each made in one transaction, and the bank's version.

A version counts the transactions that touched a bank. Whoever writes says which version it read: another one is a
Conflict, so two processes never interleave one user's changes. A change that would not apply never enters the log.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import ColumnElement, Connection, and_, insert, select, update

from localmem.bank import Bank
from localmem.errors import Conflict
from localmem.store.database import Database
from localmem.store.records import BatchState
from localmem.store.schema import banks, batches, changes, jobs
from localmem.store.serialization import ChangeCodec, named_units, to_micros
from localmem.store.sessions import chunks
from localmem.types import AddUnit, Change, SetNote

Kind = Literal["exchange", "session"]

_COLUMNS = ("batch", "position", "user", "system", "type", "time", "unit", "other", "body")


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes to be written together. `cause` makes it unique among the bank's active batches of its kind."""

    user: str
    system: str
    kind: Kind
    cause: str
    session: str | None
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Logged:
    """A batch of the log, `number` its place in it."""

    number: int
    session: str | None
    state: BatchState
    changes: tuple[Change, ...]


class BankLog:
    """Reads and writes the log; one for the store."""

    def __init__(self, database: Database, codec: ChangeCodec) -> None:
        self.codec = codec
        self._add = database.many(insert(changes), _COLUMNS)
        mark = database.mark  # asked before every reply, so it is written out once
        self._version = f'SELECT version FROM banks WHERE "user" = {mark} AND system = {mark}'  # noqa: S608  # marks

    # -- versions --------------------------------------------------------------------------------------------------

    def version(self, connection: Connection, user: str, system: str) -> int:
        """0 for a bank that nothing was ever written to."""
        return int(connection.exec_driver_sql(self._version, (user, system)).scalar() or 0)

    def advance(self, connection: Connection, user: str, system: str, read: int | None = None) -> int:
        """The new version. Raises Conflict when the bank is no longer the one of version `read` (None: any)."""
        held = self.version(connection, user, system) if read is None else read
        if held == 0 and not self._known(connection, user, system):
            connection.execute(insert(banks).values(user=user, system=system, version=1))
            return 1
        of_bank = and_(banks.c.user == user, banks.c.system == system, banks.c.version == held)
        if connection.execute(update(banks).where(of_bank).values(version=held + 1)).rowcount != 1:
            now = self.version(connection, user, system)
            raise Conflict(
                f"the bank of {system} for user {user!r} is at version {now}, not {held}: another process changed it; "
                "read it again"
            )
        return held + 1

    def _known(self, connection: Connection, user: str, system: str) -> bool:
        query = select(banks.c.version).where(banks.c.user == user, banks.c.system == system)
        return connection.execute(query).first() is not None

    def systems(self, connection: Connection, user: str) -> list[str]:
        """The systems that keep something for the user, or have it to read."""
        held = select(banks.c.system).where(banks.c.user == user)
        queued = select(jobs.c.system).where(jobs.c.user == user)
        return sorted(connection.execute(held.union(queued)).scalars())

    # -- writing ---------------------------------------------------------------------------------------------------

    def holds(self, connection: Connection, user: str, system: str, kind: Kind, cause: str) -> bool:
        """Whether an active batch of this cause is there."""
        query = select(batches.c.number).where(
            batches.c.user == user,
            batches.c.system == system,
            batches.c.kind == kind,
            batches.c.cause == cause,
            batches.c.state == "active",
        )
        return connection.execute(query).first() is not None

    def write(self, connection: Connection, batch: Batch, state: BatchState = "active") -> None:
        """Raises BadInput for changes that the bank could not apply."""
        if state == "active":
            self._check(connection, batch)
        values = {name: getattr(batch, name) for name in ("user", "system", "kind", "cause", "session")}
        added = connection.execute(insert(batches).values(state=state, **values).returning(batches.c.number))
        number = added.scalar_one()
        rows = [self._row(number, place, batch, change) for place, change in enumerate(batch.changes)]
        self._add.run(connection, rows)

    def _row(self, number: int, place: int, batch: Batch, change: Change) -> tuple[object, ...]:
        body = self.codec.encode(change)
        return (
            number,
            place,
            batch.user,
            batch.system,
            change.type,
            to_micros(change.time),
            *named_units(change),
            body,
        )

    def _check(self, connection: Connection, batch: Batch) -> None:
        """Apply the changes to the part of the bank that they name."""
        named = {unit for change in batch.changes for unit in named_units(change) if unit is not None}
        Bank().apply([*self._additions(connection, batch.user, batch.system, named), *batch.changes])

    def _additions(self, connection: Connection, user: str, system: str, units: Iterable[str]) -> Iterator[Change]:
        for part in chunks(sorted(units)):
            query = (
                select(changes.c.body)
                .select_from(changes.join(batches, changes.c.batch == batches.c.number))
                .where(changes.c.user == user, changes.c.system == system, changes.c.unit.in_(part))
                .where(of_bank(user, system), changes.c.type == "add_unit")
            )
            yield from map(self.codec.decode, connection.execute(query).scalars())

    # -- reading ---------------------------------------------------------------------------------------------------

    def changes(self, connection: Connection, user: str, system: str, until: datetime | None = None) -> list[Change]:
        """The active changes in order; with `until` those made by then that a bank of then can apply."""
        query = (
            select(changes.c.body)
            .select_from(batches.join(changes, changes.c.batch == batches.c.number))
            .where(of_bank(user, system))
            .order_by(batches.c.number, changes.c.position)
        )
        if until is None:
            return list(map(self.codec.decode, connection.execute(query).scalars()))
        rows = connection.execute(query.where(changes.c.time <= to_micros(until))).scalars()
        return list(_grounded(map(self.codec.decode, rows)))

    def of_batch(self, connection: Connection, user: str, number: int) -> tuple[Change, ...]:
        """The changes of one batch."""
        query = select(changes.c.body).where(changes.c.user == user, changes.c.batch == number)
        bodies = connection.execute(query.order_by(changes.c.position)).scalars()
        return tuple(map(self.codec.decode, bodies))

    def batches(
        self, connection: Connection, user: str, system: str, states: Sequence[BatchState] = ("active",)
    ) -> list[Logged]:
        """Batches with their changes, in order."""
        query = (
            select(batches.c.number, batches.c.session, batches.c.state, changes.c.body)
            .select_from(batches.outerjoin(changes, changes.c.batch == batches.c.number))
            .where(batches.c.user == user, batches.c.system == system, batches.c.state.in_(states))
            .order_by(batches.c.number, changes.c.position)
        )
        bodies: dict[tuple[int, str | None, BatchState], list[Change]] = {}
        for number, session, state, body in connection.execute(query):
            held = bodies.setdefault((number, session, state), [])
            if body is not None:
                held.append(self.codec.decode(body))
        return [Logged(*key, tuple(held)) for key, held in bodies.items()]


def of_bank(user: str, system: str) -> ColumnElement[bool]:
    """The active batches of one bank."""
    return and_(batches.c.user == user, batches.c.system == system, batches.c.state == "active")


def _grounded(found: Iterable[Change]) -> Iterator[Change]:
    """Without changes of units that the bank did not hold yet: sessions may be read in another order than held."""
    held: set[str] = set()
    for change in found:
        unit, other = named_units(change)
        if isinstance(change, AddUnit):
            held.add(change.unit.id)
        elif not isinstance(change, SetNote):
            ends = {unit, other} if change.type == "add_link" else {unit}
            if not ends <= held:
                continue
        yield change
