"""Takes back changes: those of one session, or all that came from the raw log. Soft: they stay in the history."""

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, update

from localmem.store import jobs
from localmem.store.change_log import ChangeLog, LoggedBatch, of_bank
from localmem.store.dependents import dependents
from localmem.store.records import BatchState
from localmem.store.schema import batches
from localmem.store.sessions import chunks, no_session, session_states


def undo(connection: Connection, log: ChangeLog, user: str, system: str, session_id: str) -> list[str]:
    """Take back the changes of a session and all that depends on them; see `Store.undo`."""
    if session_id not in session_states(connection, user):
        raise no_session(user, session_id)
    active = log.batches(connection, user, system)
    numbers = dependents(active, [batch.number for batch in active if batch.session == session_id])
    return _take_back(connection, log, (user, system), active, numbers, "undone", excluded=session_id)


def clear(connection: Connection, log: ChangeLog, user: str, system: str) -> list[str]:
    """Take back all changes of closed sessions and queue these sessions again; see `Store.clear`."""
    closed = [session_id for session_id, state in session_states(connection, user).items() if state == "closed"]
    active = log.batches(connection, user, system)
    ids = set(closed)
    numbers = dependents(active, [batch.number for batch in active if batch.session in ids])
    _take_back(connection, log, (user, system), active, numbers, "superseded", excluded=None)
    jobs.requeue(connection, user, system, closed)
    return closed


def _take_back(
    connection: Connection,
    log: ChangeLog,
    bank: tuple[str, str],
    active: Sequence[LoggedBatch],
    numbers: Collection[int],
    state: BatchState,
    excluded: str | None,
) -> list[str]:
    """Set the state of the batches, queue their sessions again except for `excluded`, and return these in order."""
    user, system = bank
    if not numbers:
        return []
    for part in chunks(sorted(numbers)):
        query = update(batches).where(of_bank(user, system), batches.c.number.in_(part))
        connection.execute(query.values(state=state))
    affected = {batch.session for batch in active if batch.number in numbers} - {excluded}
    queued = [session_id for session_id in session_states(connection, user) if session_id in affected]
    jobs.requeue(connection, user, system, queued)
    log.advance(connection, user, system)
    return queued
