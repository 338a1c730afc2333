"""How one unit came to be: everything the log ever said of it, and the turns it came from. Writes nothing."""

from sqlalchemy import Connection, select

from localmem.errors import NotFound
from localmem.store.change_log import BankLog
from localmem.store.records import Event, UnitHistory
from localmem.store.schema import batches, changes
from localmem.store.sessions import turns_by_id
from localmem.types import AddUnit, RetireUnit, Unit


def history(connection: Connection, log: BankLog, user: str, system: str, unit_id: str) -> UnitHistory:
    """Raises NotFound. What was taken back is told as well."""
    events = _events(connection, log, user, system, unit_id)
    unit = _latest(events, unit_id)
    if unit is None:
        raise no_unit(user, system, unit_id)
    said = turns_by_id(connection, user, unit.sources)
    counts = [event.change for event in events if event.state == "active"]
    added = any(isinstance(change, AddUnit) for change in counts)
    retired = any(isinstance(change, RetireUnit) and change.unit == unit_id for change in counts)
    sources = tuple(said[turn] for turn in unit.sources if turn in said)
    return UnitHistory(unit, added and not retired, sources, events)


def _events(connection: Connection, log: BankLog, user: str, system: str, unit_id: str) -> tuple[Event, ...]:
    """By two look-ups, each through its own index: the unit itself, and as the other end."""
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
    return tuple(Event(log.codec.decode(row[2]), row[3], row[4], row[5]) for _, row in sorted(rows.items()))


def _latest(events: tuple[Event, ...], unit_id: str) -> Unit | None:
    """The unit as it counts now; as it was last, when it was taken back."""
    found = sorted(events, key=lambda event: event.state == "active")
    units = [event.change.unit for event in found if isinstance(event.change, AddUnit)]
    return next((unit for unit in reversed(units) if unit.id == unit_id), None)


def no_unit(user: str, system: str, unit_id: str) -> NotFound:
    """The error for a unit that is not there."""
    return NotFound(f"user {user!r} has no unit {unit_id!r} in {system}; `localmem show` lists what there is")
