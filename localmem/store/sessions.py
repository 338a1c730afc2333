"""Sessions read back from the raw log, and what a system has not read of it yet. Writes nothing.

The order of sessions is the order in which they were held; of two that began together, the one opened first is first.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, and_, case, func, select

from localmem.errors import NotFound
from localmem.store.records import JobState, SessionInfo, SessionState, Unread
from localmem.store.schema import batches, jobs, sessions, turns
from localmem.store.serialization import from_micros
from localmem.types import Session, Turn

Value = TypeVar("Value")

# Values of one IN list; SQLite takes 32,766 in a statement.
_CHUNK = 500

_OF_SESSION = and_(turns.c.user == sessions.c.user, turns.c.session == sessions.c.id)
_SAID = select(turns.c.id).where(_OF_SESSION).correlate(sessions).exists()
_IN_ORDER = (sessions.c.started, sessions.c.number)


def users(connection: Connection) -> list[str]:
    """Everyone who ever said or taught something, by name."""
    everyone = select(sessions.c.user).union(select(batches.c.user))
    return sorted(connection.execute(everyone).scalars())


def infos(connection: Connection, user: str, state: SessionState | None) -> list[SessionInfo]:
    """Sessions without their words, in order."""
    count = select(func.count()).select_from(turns).where(_OF_SESSION).scalar_subquery().label("turns")
    query = select(sessions, count).where(sessions.c.user == user).order_by(*_IN_ORDER)
    if state is not None:
        query = query.where(sessions.c.state == state)
    working = _job_states(connection, user)
    return [_info(row, working.get(row["id"], {})) for row in connection.execute(query).mappings()]


def one(connection: Connection, user: str, session_id: str) -> Session:
    """Raises NotFound."""
    found = _load(connection, and_(sessions.c.user == user, sessions.c.id == session_id))
    if not found:
        raise NotFound(f"user {user!r} has no session {session_id!r}; `localmem show` lists what there is")
    return found[0]


def going_on(connection: Connection, user: str) -> list[Session]:
    """Sessions that are open, in order."""
    return _load(connection, and_(sessions.c.user == user, sessions.c.state == "open"))


def unfinished(connection: Connection, user: str, system: str) -> list[Session]:
    """Closed sessions that the system has not remembered, in order; one that was emptied by an erasure is not read."""
    return _load(connection, and_(_unread(user, system), _SAID))


def unread(connection: Connection, user: str, system: str) -> Unread:
    """How much `unfinished` would give."""
    failed = _job_is("failed", user, system)
    per_session = (
        select(func.count().label("turns"), func.max(case((failed, 1), else_=0)).label("failed"))
        .select_from(sessions.join(turns, _OF_SESSION))
        .where(_unread(user, system))
        .group_by(sessions.c.id)
        .subquery()
    )
    totals = select(func.count(), func.sum(per_session.c.turns), func.sum(per_session.c.failed))
    row = connection.execute(totals.select_from(per_session)).one()
    return Unread(row[0], int(row[1] or 0), int(row[2] or 0))


def turns_by_id(connection: Connection, user: str, ids: Collection[str]) -> dict[str, Turn]:
    """Those of the user's turns that are there."""
    found = {}
    for part in chunks(sorted(ids)):
        query = select(turns).where(turns.c.user == user, turns.c.id.in_(part))
        found.update({row["id"]: to_turn(row) for row in connection.execute(query).mappings()})
    return found


def session_of_turn(connection: Connection, user: str, turn_id: str) -> str | None:
    """The session in which the turn was said."""
    query = select(turns.c.session).where(turns.c.user == user, turns.c.id == turn_id)
    session: str | None = connection.execute(query).scalar()
    return session


def to_turn(row: RowMapping) -> Turn:
    """The turn of a row, its time on the speaker's clock."""
    return Turn(row["id"], row["role"], row["speaker"], row["text"], from_micros(row["time"], row["zone"]))


def chunks(values: Sequence[Value]) -> Iterable[Sequence[Value]]:
    """Parts that fit one IN list."""
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))


def _unread(user: str, system: str) -> ColumnElement[bool]:
    return and_(sessions.c.user == user, sessions.c.state == "closed", ~_job_is("done", user, system))


def _job_is(state: JobState, user: str, system: str) -> ColumnElement[bool]:
    of_job = and_(jobs.c.user == user, jobs.c.session == sessions.c.id, jobs.c.system == system)
    return select(jobs.c.state).where(of_job, jobs.c.state == state).correlate(sessions).exists()


def _load(connection: Connection, which: ColumnElement[bool]) -> list[Session]:
    """Sessions with their turns; one query for all of them."""
    said = select(sessions.c.id.label("of"), turns).select_from(sessions.outerjoin(turns, _OF_SESSION)).where(which)
    rows = connection.execute(said.order_by(*_IN_ORDER, turns.c.position)).mappings()
    return [
        Session(key, tuple(to_turn(row) for row in group if row["id"] is not None))
        for key, group in groupby(rows, key=lambda row: str(row["of"]))
    ]


def _job_states(connection: Connection, user: str) -> Mapping[str, dict[str, JobState]]:
    states: dict[str, dict[str, JobState]] = {}
    for row in connection.execute(select(jobs).where(jobs.c.user == user).order_by(jobs.c.system)).mappings():
        states.setdefault(row["session"], {})[row["system"]] = row["state"]
    return states


def _info(row: RowMapping, states: Mapping[str, JobState]) -> SessionInfo:
    return SessionInfo(
        row["id"], row["state"], from_micros(row["started"]), from_micros(row["ended"]), row["turns"], dict(states)
    )
