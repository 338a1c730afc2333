"""Reads sessions and turns of the raw log, and which of them a system has not remembered. Writes nothing.

Sessions are ordered by their first turn; of two that began at the same time, the one opened first comes first.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Literal, TypeVar

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, and_, case, func, select

from localmem.errors import NotFound
from localmem.journal import Extents
from localmem.store.schema import batches, jobs, sessions, turns
from localmem.store.serialization import from_micros
from localmem.types import Session, Turn

SessionState = Literal["open", "closed"]
JobState = Literal["pending", "running", "done", "failed"]

Value = TypeVar("Value")

# Values of one IN list; SQLite allows 32,766 variables in a statement.
_CHUNK = 500

_OF_SESSION = and_(turns.c.user == sessions.c.user, turns.c.session == sessions.c.id)
_HAS_TURNS = select(turns.c.id).where(_OF_SESSION).correlate(sessions).exists()
_IN_ORDER = (sessions.c.started, sessions.c.number)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session without its text, but for its `opening` in some lists. Times are UTC.

    `logged` also counts the turns that an erasure removed. `jobs` is the state of its job by system; `opening` is what
    the user said first.
    """

    id: str
    state: SessionState
    started: datetime
    ended: datetime
    turns: int
    logged: int
    jobs: Mapping[str, JobState] = field(default_factory=dict)
    opening: Turn | None = None


@dataclass(frozen=True, slots=True)
class Backlog:
    """The closed sessions that a system has not remembered yet: `failed` of them after a failed attempt."""

    sessions: int
    turns: int
    failed: int


def no_user(user: str) -> NotFound:
    """The error for a user without rows."""
    return NotFound(f"there is no user {user!r}; check the name")


def no_session(user: str, session_id: str) -> NotFound:
    """The error for a missing session."""
    return NotFound(f"user {user!r} has no session {session_id!r}; `localmem sessions` lists them")


def users(connection: Connection) -> list[str]:
    """All users with a session or a memory, by name."""
    everyone = select(sessions.c.user).union(select(batches.c.user))
    return sorted(connection.execute(everyone).scalars())


def session_infos(connection: Connection, user: str, state: SessionState | None) -> list[SessionInfo]:
    """Sessions without their text, in order."""
    count = select(func.count()).select_from(turns).where(_OF_SESSION).scalar_subquery().label("turns")
    query = select(sessions, count).where(sessions.c.user == user).order_by(*_IN_ORDER)
    if state is not None:
        query = query.where(sessions.c.state == state)
    return _infos(connection, query, select(jobs).where(jobs.c.user == user))


def newest_sessions(connection: Connection, user: str, start: int, count: int) -> list[SessionInfo]:
    """A page of the sessions, the last first, with what the user said first in each."""
    turn_count = select(func.count()).select_from(turns).where(_OF_SESSION).scalar_subquery().label("turns")
    in_reverse = [column.desc() for column in _IN_ORDER]
    of_user = select(sessions, turn_count).where(sessions.c.user == user)
    query = of_user.order_by(*in_reverse).offset(start).limit(count)
    ids = select(sessions.c.id).where(sessions.c.user == user).order_by(*in_reverse).offset(start).limit(count)
    infos = _infos(connection, query, select(jobs).where(jobs.c.user == user, jobs.c.session.in_(ids)))
    openings = _first_turns(connection, user, [info.id for info in infos])
    return [replace(info, opening=openings.get(info.id)) for info in infos]


def _first_turns(connection: Connection, user: str, ids: Collection[str]) -> dict[str, Turn]:
    """What the user said first in each of these sessions, by session."""
    of_user = and_(turns.c.user == user, turns.c.role == "user", turns.c.session.in_(ids))
    first = select(turns.c.session, func.min(turns.c.position).label("position")).where(of_user)
    places = first.group_by(turns.c.session).subquery()
    at_place = and_(turns.c.session == places.c.session, turns.c.position == places.c.position)
    rows = connection.execute(select(turns).join(places, at_place).where(of_user)).mappings()
    return {row["session"]: to_turn(row) for row in rows}


def _infos(connection: Connection, query: Select[Any], of_jobs: Select[Any]) -> list[SessionInfo]:
    states: dict[str, dict[str, JobState]] = {}
    for row in connection.execute(of_jobs.order_by(jobs.c.system)).mappings():
        states.setdefault(row["session"], {})[row["system"]] = row["state"]
    infos = []
    for row in connection.execute(query).mappings():
        started, ended = from_micros(row["started"]), from_micros(row["ended"])
        counts = row["turns"], row["position"]
        infos.append(SessionInfo(row["id"], row["state"], started, ended, *counts, states.get(row["id"], {})))
    return infos


def session_states(connection: Connection, user: str) -> dict[str, SessionState]:
    """The state of each session, in order."""
    query = select(sessions.c.id, sessions.c.state).where(sessions.c.user == user)
    return {row[0]: row[1] for row in connection.execute(query.order_by(*_IN_ORDER))}


def load_session(connection: Connection, user: str, session_id: str) -> Session:
    """One session with its turns. Raises NotFound."""
    matches = _load(connection, and_(sessions.c.user == user, sessions.c.id == session_id))
    if not matches:
        raise no_session(user, session_id)
    return matches[0]


def all_sessions(connection: Connection, user: str) -> list[Session]:
    """Every session with its turns, in order."""
    return _load(connection, sessions.c.user == user)


def open_sessions(connection: Connection, user: str) -> list[Session]:
    """Sessions that are not closed, in order."""
    return _load(connection, and_(sessions.c.user == user, sessions.c.state == "open"))


def pending_sessions(connection: Connection, user: str, system: str) -> list[Session]:
    """Closed sessions that the system has not remembered, in order; not those that an erasure emptied."""
    return _load(connection, and_(_pending(user, system), _HAS_TURNS))


# As text, because it runs before every reply and SQLAlchemy would process the expressions each time.
_EXTENTS = (
    "SELECT s.id, s.state, count(t.id), (SELECT l.time FROM turns AS l"
    ' WHERE l."user" = {0} AND l.session = s.id ORDER BY l.position DESC LIMIT 1)'
    ' FROM sessions AS s LEFT JOIN turns AS t ON t."user" = s."user" AND t.session = s.id'
    " WHERE s.\"user\" = {0} AND (s.state = 'open' OR NOT EXISTS (SELECT 1 FROM jobs AS j"
    ' WHERE j."user" = s."user" AND j.session = s.id AND j.system = {0} AND j.state = \'done\'))'
    " GROUP BY s.id, s.state"
)


def is_current(connection: Connection, user: str, system: str, opened: Extents, waiting: Extents) -> bool:
    """Whether these are the open sessions, and those with turns that wait to be remembered."""
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    present: dict[str, dict[str, tuple[int, datetime | None]]] = {"open": {}, "closed": {}}
    for name, state, size, last in connection.exec_driver_sql(_EXTENTS.format(mark), (user, user, system)):
        if size or state == "open":
            present[state][name] = size, None if last is None else from_micros(last)
    return present == {"open": opened, "closed": waiting}


def backlog(connection: Connection, user: str, system: str) -> Backlog:
    """The size of `pending_sessions`."""
    failed = _job_is("failed", user, system)
    per_session = (
        select(func.count().label("turns"), func.max(case((failed, 1), else_=0)).label("failed"))
        .select_from(sessions.join(turns, _OF_SESSION))
        .where(_pending(user, system))
        .group_by(sessions.c.id)
        .subquery()
    )
    totals = select(func.count(), func.sum(per_session.c.turns), func.sum(per_session.c.failed))
    row = connection.execute(totals.select_from(per_session)).one()
    return Backlog(row[0], int(row[1] or 0), int(row[2] or 0))


def turns_by_id(connection: Connection, user: str, ids: Collection[str]) -> dict[str, Turn]:
    """The turns with these ids that exist."""
    by_id = {}
    for part in chunks(sorted(ids)):
        query = select(turns).where(turns.c.user == user, turns.c.id.in_(part))
        by_id.update({row["id"]: to_turn(row) for row in connection.execute(query).mappings()})
    return by_id


def replies_to(connection: Connection, user: str, ids: Collection[str]) -> set[str]:
    """The ids of the assistant's turns between these turns and the user's next: a reply may repeat what it answers."""
    reply, between = turns.alias(), turns.alias()
    in_session = [and_(other.c.user == turns.c.user, other.c.session == turns.c.session) for other in (reply, between)]
    is_between = and_(between.c.position > turns.c.position, between.c.position < reply.c.position)
    user_between = select(between.c.id).where(in_session[1], is_between, between.c.role == "user")
    after = and_(in_session[0], reply.c.position > turns.c.position, reply.c.role == "assistant")
    query = select(reply.c.id).select_from(turns.join(reply, after)).where(~user_between.exists())
    replies = set[str]()
    for part in chunks(sorted(ids)):
        of_users = query.where(turns.c.user == user, turns.c.id.in_(part), turns.c.role == "user")
        replies.update(connection.execute(of_users).scalars())
    return replies


def replies_with(connection: Connection, user: str, texts: Collection[str]) -> list[str]:
    """The ids of the assistant's turns that contain one of these texts word for word; a sealed text is opened first."""
    query = select(turns.c.id, turns.c.text).where(turns.c.user == user, turns.c.role == "assistant")
    return [row.id for row in connection.execute(query) if any(text in row.text for text in texts)]


def sessions_of_turns(connection: Connection, user: str, turn_ids: Collection[str]) -> dict[str, str]:
    """The ids of the sessions that contain these turns, by turn."""
    query = select(turns.c.id, turns.c.session).where(turns.c.user == user)
    rows = (connection.execute(query.where(turns.c.id.in_(part))) for part in chunks(sorted(turn_ids)))
    return {turn: session for part in rows for turn, session in part}


def to_turn(row: RowMapping) -> Turn:
    """The turn of a row, with its time in the speaker's zone."""
    return Turn(row["id"], row["role"], row["speaker"], row["text"], from_micros(row["time"], row["zone"]))


def chunks(values: Sequence[Value]) -> Iterable[Sequence[Value]]:
    """Parts that fit into one IN list."""
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))


def _pending(user: str, system: str) -> ColumnElement[bool]:
    return and_(sessions.c.user == user, sessions.c.state == "closed", ~_job_is("done", user, system))


def _job_is(state: JobState, user: str, system: str) -> ColumnElement[bool]:
    of_job = and_(jobs.c.user == user, jobs.c.session == sessions.c.id, jobs.c.system == system)
    return select(jobs.c.state).where(of_job, jobs.c.state == state).correlate(sessions).exists()


def _load(connection: Connection, condition: ColumnElement[bool]) -> list[Session]:
    """Sessions with their turns, in one query."""
    query = select(sessions.c.id.label("of"), turns).select_from(sessions.outerjoin(turns, _OF_SESSION))
    rows = connection.execute(query.where(condition).order_by(*_IN_ORDER, turns.c.position)).mappings()
    return [
        Session(key, tuple(to_turn(row) for row in group if row["id"] is not None))
        for key, group in groupby(rows, key=lambda row: str(row["of"]))
    ]
