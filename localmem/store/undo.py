"""Takes back changes: those of one session, or all that came from the raw log. Soft: they stay in the history.

What depends on them goes too. A batch depends on another that added a unit it names, or that wrote the previous text of
a note it writes: a note is always derived from the one before. A finished session is remembered as a whole, so its
batches go together.
"""

from collections.abc import Collection, Iterator, Sequence, Set
from typing import Literal

from sqlalchemy import Connection, select, update

from localmem.errors import NotFound
from localmem.store import jobs
from localmem.store.change_log import Batch, BatchState, ChangeLog, LoggedBatch, of_bank
from localmem.store.schema import batches
from localmem.store.serialization import named_units
from localmem.store.sessions import chunks, no_session, session_states
from localmem.types import AddLink, AddUnit, Change, Hide, MarkUnit, Restore, SetNote

Name = tuple[Literal["unit", "note"], str]


def undo(connection: Connection, log: ChangeLog, user: str, system: str, session_id: str) -> list[str]:
    """Take back the changes of a session and all that depends on them; see `Store.undo`."""
    if session_id not in session_states(connection, user):
        raise no_session(user, session_id)
    active = log.batches(connection, user, system)
    numbers = dependents(active, [batch.number for batch in active if batch.session == session_id])
    return _take_back(connection, log, (user, system), active, numbers, "undone", excluded=session_id)


def undo_batch(connection: Connection, log: ChangeLog, user: str, system: str, cause: str) -> list[str]:
    """Take back the batch of a cause, with all that depends on it; see `Store.undo_batch`.

    That a request to forget was made stays known, so that a rebuild does not carry it out again.
    """
    of_cause = select(batches.c.number).where(
        of_bank(user, system), batches.c.cause == cause, batches.c.session.is_(None)
    )
    numbers = connection.execute(of_cause).scalars().all()
    if not numbers:
        raise NotFound(f"user {user!r} has no batch {cause!r} in {system}; `localmem show --history ID` shows causes")
    active = log.batches(connection, user, system)
    requests = [
        change
        for batch in active
        if batch.number in numbers
        for change in batch.changes
        if isinstance(change, Hide) and change.item == change.by
    ]
    queued = _take_back(connection, log, (user, system), active, dependents(active, numbers), "undone", excluded=None)
    if requests:
        log.write(connection, Batch(user, system, "exchange", f"undo:{cause}", None, tuple(requests)))
    return queued


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


def dependents(
    log: Sequence[LoggedBatch], roots: Collection[int], *, text_only: bool = False, unfinished: Set[str] = frozenset()
) -> set[int]:
    """The numbers of the batches `roots` and of all that depend on them, directly or not.

    `log` is in order. With `text_only`, a link or a mark does not count: it names a unit but repeats none of its text.
    The batches of `unfinished` sessions do not go together: each was made from the turns so far.
    """
    selected, size = set(roots), -1
    while len(selected) > size:  # until a round adds nothing
        size = len(selected)
        sessions = {batch.session for batch in log if batch.number in selected} - {None} - unfinished
        selected |= {batch.number for batch in log if batch.session in sessions}
        selected |= _downstream(log, selected, text_only)
    return selected


def _downstream(log: Sequence[LoggedBatch], selected: Set[int], text_only: bool) -> set[int]:
    """The selected batches and later ones that need what those added. What an earlier batch added too is not lost."""
    first_adders: dict[Name, int] = {}
    lost: set[Name] = set()
    result = set(selected)
    for batch in log:
        if not (_marks_by_hand(batch) or lost.isdisjoint(_needs(batch.changes, text_only))):
            result.add(batch.number)
        for name in _adds(batch.changes):
            first = first_adders.setdefault(name, batch.number)
            if batch.number in result and (first in result or name[0] == "note"):
                lost.add(name)
    return result


def _marks_by_hand(batch: LoggedBatch) -> bool:
    """Whether a person marked a unit, such as by a pin: the mark waits for a unit that a rebuild makes again."""
    return batch.session is None and all(isinstance(change, MarkUnit) for change in batch.changes)


def _adds(changes: Sequence[Change]) -> Iterator[Name]:
    for change in changes:
        if isinstance(change, AddUnit):
            yield "unit", change.unit.id
        elif isinstance(change, SetNote):
            yield "note", change.name


def _needs(changes: Sequence[Change], text_only: bool) -> Iterator[Name]:
    for change in changes:
        if isinstance(change, SetNote):
            yield "note", change.name
        elif not isinstance(change, AddUnit | Hide | Restore) and not (
            text_only and isinstance(change, AddLink | MarkUnit)
        ):
            yield from (("unit", unit) for unit in named_units(change) if unit is not None)
