"""Taking back: one session's changes, or all that was read from the log. Soft: what is taken back stays in history."""

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, select, update

from localmem.errors import NotFound
from localmem.store import jobs
from localmem.store.change_log import BankLog, Logged, of_bank
from localmem.store.dependents import standing_on
from localmem.store.records import BatchState
from localmem.store.schema import batches, sessions
from localmem.store.sessions import chunks


def undo(connection: Connection, log: BankLog, user: str, system: str, session_id: str) -> list[str]:
    """Take back a session's changes and all that stands on them; see `Store.undo`."""
    if session_id not in _held(connection, user):
        raise NotFound(f"user {user!r} has no session {session_id!r}; `localmem show` lists what there is")
    active = log.batches(connection, user, system)
    gone = standing_on(active, [batch.number for batch in active if batch.session == session_id])
    return _take_back(connection, log, (user, system), active, gone, "undone", spared=session_id)


def clear(connection: Connection, log: BankLog, user: str, system: str) -> list[str]:
    """Take back all that was drawn from closed sessions, and queue these again; see `Store.clear`."""
    closed = [session_id for session_id, state in _held(connection, user).items() if state == "closed"]
    active = log.batches(connection, user, system)
    read = set(closed)
    gone = standing_on(active, [batch.number for batch in active if batch.session in read])
    _take_back(connection, log, (user, system), active, gone, "superseded", spared=None)
    jobs.queue_again(connection, user, system, closed)
    return closed


def _take_back(
    connection: Connection,
    log: BankLog,
    bank: tuple[str, str],
    active: Sequence[Logged],
    gone: Collection[int],
    state: BatchState,
    spared: str | None,
) -> list[str]:
    """Flag the batches, queue their sessions again but for the spared one, and return these in order."""
    user, system = bank
    if not gone:
        return []
    for part in chunks(sorted(gone)):
        flagged = update(batches).where(of_bank(user, system), batches.c.number.in_(part))
        connection.execute(flagged.values(state=state))
    touched = {batch.session for batch in active if batch.number in gone} - {spared}
    again = [session_id for session_id in _held(connection, user) if session_id in touched]
    jobs.queue_again(connection, user, system, again)
    log.advance(connection, user, system)
    return again


def _held(connection: Connection, user: str) -> dict[str, str]:
    """The user's sessions and their states, in order."""
    query = select(sessions.c.id, sessions.c.state).where(sessions.c.user == user)
    return {row[0]: row[1] for row in connection.execute(query.order_by(sessions.c.started, sessions.c.number))}
