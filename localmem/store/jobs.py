"""Jobs: a closed session waits, for each system, until that system has remembered it.

pending -> running -> done, or failed and tried again. A running job whose process has died is taken over. Does not
depend on what the work is.
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import psutil
from sqlalchemy import ColumnElement, Connection, RowMapping, and_, exists, insert, select, update

from localmem.errors import BadInput
from localmem.store import postgres
from localmem.store.schema import jobs, sessions, turns
from localmem.store.sessions import JobState, chunks, no_session


@dataclass(frozen=True, slots=True)
class SessionJob:
    """A closed session that one system has to remember."""

    user: str
    system: str
    session: str
    state: JobState
    attempts: int = 0
    error: str = ""


def close(connection: Connection, user: str, system: str, session_id: str) -> None:
    """Close the session and queue it for this system. Raises NotFound."""
    _session_state(connection, user, session_id)
    of_session = and_(sessions.c.user == user, sessions.c.id == session_id)
    connection.execute(update(sessions).where(of_session).values(state="closed"))
    if _find(connection, user, system, session_id) is None:
        _insert(connection, user, system, session_id, "pending")


def finish(connection: Connection, user: str, system: str, session_id: str) -> bool:
    """Mark the job as done; False if it was done before. Raises NotFound, and BadInput for an open session."""
    _require_closed(connection, user, session_id)
    job = _find(connection, user, system, session_id)
    if job is not None and job.state == "done":
        return False
    if job is None:
        _insert(connection, user, system, session_id, "done")
    else:
        _set(connection, user, system, session_id, state="done", owner="", error="")
    return True


def fail(connection: Connection, user: str, system: str, session_id: str, error: str) -> int:
    """Count a failed attempt and return the attempts so far; a job that is done stays done."""
    _require_closed(connection, user, session_id)
    job = _find(connection, user, system, session_id)
    if job is None:
        _insert(connection, user, system, session_id, "pending")
    elif job.state == "done":
        return job.attempts
    attempts = (job.attempts if job else 0) + 1
    _set(connection, user, system, session_id, state="failed", owner="", error=error, attempts=attempts)
    return attempts


def claim(connection: Connection, job: SessionJob) -> bool:
    """Assign the job to this process; False if it is done or belongs to another process that is alive."""
    query = select(jobs).where(_of_job(job.user, job.system, job.session)).with_for_update(skip_locked=True)
    row = connection.execute(query).mappings().first()
    if row is None or row["state"] == "done" or _is_running(connection, row):
        return False
    _set(connection, job.user, job.system, job.session, state="running", owner=this_process())
    return True


def release(connection: Connection, job: SessionJob) -> None:
    """Return a claimed job to the queue without a result."""
    own = and_(_of_job(job.user, job.system, job.session), jobs.c.state == "running", jobs.c.owner == this_process())
    connection.execute(update(jobs).where(own).values(state="pending", owner=""))


def pending(connection: Connection, system: str | None, attempts: int | None) -> list[SessionJob]:
    """Jobs to work on, of all users and of one system or all, the session opened first first.

    Without jobs that failed `attempts` times, if that is given; with running jobs of dead processes.
    """
    has_turns = exists().where(turns.c.user == jobs.c.user, turns.c.session == jobs.c.session)
    query = (
        select(jobs)
        .select_from(jobs.join(sessions, and_(sessions.c.user == jobs.c.user, sessions.c.id == jobs.c.session)))
        .where(jobs.c.state != "done", has_turns)
        .order_by(sessions.c.number)
    )
    if attempts is not None:
        query = query.where(jobs.c.attempts < attempts)
    if system is not None:
        query = query.where(jobs.c.system == system)
    rows = connection.execute(query).mappings().all()
    return [_job(row) for row in rows if not _is_running(connection, row)]


def requeue(connection: Connection, user: str, system: str, session_ids: Sequence[str]) -> None:
    """Queue the closed ones of these sessions to be remembered again."""
    for part in chunks(sorted(session_ids)):
        with_job = select(jobs.c.session).where(jobs.c.user == user, jobs.c.system == system, jobs.c.session.in_(part))
        of_closed = and_(sessions.c.user == user, sessions.c.state == "closed", sessions.c.id.in_(part))
        closed = set(connection.execute(select(sessions.c.id).where(of_closed)).scalars())
        existing = closed & set(connection.execute(with_job).scalars())
        of_existing = and_(jobs.c.user == user, jobs.c.system == system, jobs.c.session.in_(sorted(existing)))
        connection.execute(update(jobs).where(of_existing).values(state="pending", owner="", error="", attempts=0))
        for session_id in sorted(closed - existing):
            _insert(connection, user, system, session_id, "pending")


def queue_unread(connection: Connection, system: str) -> int:
    """Queue all users' closed sessions that the system was never given, and return their number."""
    of_session = and_(jobs.c.user == sessions.c.user, jobs.c.session == sessions.c.id)
    has_job = exists().where(of_session, jobs.c.system == system)
    query = select(sessions.c.user, sessions.c.id).where(sessions.c.state == "closed", ~has_job)
    unread = connection.execute(query.order_by(sessions.c.number)).all()
    for user, session_id in unread:
        _insert(connection, user, system, session_id, "pending")
    return len(unread)


def _find(connection: Connection, user: str, system: str, session_id: str) -> SessionJob | None:
    row = connection.execute(select(jobs).where(_of_job(user, system, session_id))).mappings().first()
    return _job(row) if row else None


def _job(row: RowMapping) -> SessionJob:
    return SessionJob(row["user"], row["system"], row["session"], row["state"], row["attempts"], row["error"])


def _of_job(user: str, system: str, session_id: str) -> ColumnElement[bool]:
    return and_(jobs.c.user == user, jobs.c.session == session_id, jobs.c.system == system)


def _session_state(connection: Connection, user: str, session_id: str) -> str:
    query = select(sessions.c.state).where(sessions.c.user == user, sessions.c.id == session_id)
    state: str | None = connection.execute(query).scalar()
    if state is None:
        raise no_session(user, session_id)
    return state


def _require_closed(connection: Connection, user: str, session_id: str) -> None:
    if _session_state(connection, user, session_id) != "closed":
        raise BadInput(f"session {session_id!r} of user {user!r} is open; close it first")


def _insert(connection: Connection, user: str, system: str, session_id: str, state: JobState) -> None:
    row = {"user": user, "session": session_id, "system": system, "state": state}
    connection.execute(insert(jobs).values(attempts=0, error="", owner="", **row))


def _set(connection: Connection, user: str, system: str, session_id: str, **values: object) -> None:
    connection.execute(update(jobs).where(_of_job(user, system, session_id)).values(**values))


def this_process() -> str:
    """The owner of the jobs of this process. The start time tells it from a later process with the same number."""
    return f"{socket.gethostname()}/{os.getpid()}/{psutil.Process().create_time()}"


def _is_running(connection: Connection, row: RowMapping) -> bool:
    """Whether a living process works on the job. On SQLite one on another machine counts as alive."""
    owner: str = row["owner"]
    if connection.dialect.name == "postgresql":
        return row["state"] == "running" and postgres.is_alive(connection, owner)
    host, _, process = owner.partition("/")
    number, _, started = process.partition("/")
    if row["state"] != "running":
        return False
    if host != socket.gethostname():
        return True
    try:
        return started == f"{psutil.Process(int(number)).create_time()}"
    except psutil.NoSuchProcess:
        return False
