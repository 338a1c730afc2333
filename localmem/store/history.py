"""How a unit came to be: all changes that name it, and the turns it came from. Writes nothing."""

from sqlalchemy import Connection, select

from localmem.errors import NotFound
from localmem.store.change_log import ChangeLog
from localmem.store.records import Event, UnitHistory
from localmem.store.schema import batches, changes
from localmem.store.sessions import turns_by_id
from localmem.types import AddUnit, RetireUnit, Unit


def unit_history(connection: Connection, log: ChangeLog, user: str, system: str, unit_id: str) -> UnitHistory:
    """With changes that were taken back. Raises NotFound."""
    events = _events(connection, log, user, system, unit_id)
    unit = _latest(events, unit_id)
    if unit is None:
        raise no_unit(user, system, unit_id)
    turns = turns_by_id(connection, user, unit.sources)
    active = [event.change for event in events if event.state == "active"]
    added = any(isinstance(change, AddUnit) for change in active)
    retired = any(isinstance(change, RetireUnit) and change.unit == unit_id for change in active)
    sources = tuple(turns[turn] for turn in unit.sources if turn in turns)
    return UnitHistory(unit, added and not retired, sources, events)


def no_unit(user: str, system: str, unit_id: str) -> NotFound:
    """The error for a missing unit."""
    return NotFound(f"user {user!r} has no unit {unit_id!r} in {system}; `localmem show` lists the units")


def _events(connection: Connection, log: ChangeLog, user: str, system: str, unit_id: str) -> tuple[Event, ...]:
    """From two queries, for the unit as subject and as other end, because each can use an index."""
    query = (
        select(changes.c.batch, changes.c.position, changes.c.body, batches.c.cause, batches.c.session, batches.c.state)
        .select_from(changes.join(batches, changes.c.batch == batches.c.number))
        .where(changes.c.user == user, changes.c.system == system)
    )
    rows = {
        (row[0], row[1]): row
        for column in (changes.c.unit, changes.c.other)
        for row in connection.execute(query.where(column == unit_id))
    }
    return tuple(Event(log.serializer.decode(row[2]), row[3], row[4], row[5]) for _, row in sorted(rows.items()))


def _latest(events: tuple[Event, ...], unit_id: str) -> Unit | None:
    """The unit as it is in effect, else as it was last before it was taken back."""
    ordered = sorted(events, key=lambda event: event.state == "active")
    units = [event.change.unit for event in ordered if isinstance(event.change, AddUnit)]
    return next((unit for unit in reversed(units) if unit.id == unit_id), None)
