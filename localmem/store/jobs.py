"""Jobs: a closed session waits, per system, until it is remembered.

pending -> running -> done, or failed and tried again. A running job whose process is gone is taken over. Knows nothing
of what the work is.
"""

import os
import socket
from collections.abc import Sequence

import psutil  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy import ColumnElement, Connection, RowMapping, and_, exists, insert, select, update

from localmem.errors import BadInput, NotFound
from localmem.store.records import Job, JobState
from localmem.store.schema import jobs, sessions, turns
from localmem.store.sessions import chunks


def close(connection: Connection, user: str, system: str, session_id: str) -> None:
    """The session is over, and waits to be remembered by this system. Raises NotFound."""
    _state(connection, user, session_id)
    of_session = and_(sessions.c.user == user, sessions.c.id == session_id)
    connection.execute(update(sessions).where(of_session).values(state="closed"))
    if find(connection, user, system, session_id) is None:
        _insert(connection, user, system, session_id, "pending")


def find(connection: Connection, user: str, system: str, session_id: str) -> Job | None:
    """The job, if there is one."""
    row = connection.execute(select(jobs).where(_of_job(user, system, session_id))).mappings().first()
    return _job(row) if row else None


def finish(connection: Connection, user: str, system: str, session_id: str) -> bool:
    """The job is done; False if it was before. Raises NotFound, and BadInput for a session that goes on."""
    if _state(connection, user, session_id) != "closed":
        raise BadInput(f"session {session_id!r} of user {user!r} goes on; close it first")
    job = find(connection, user, system, session_id)
    if job is not None and job.state == "done":
        return False
    if job is None:
        _insert(connection, user, system, session_id, "done")
    else:
        _set(connection, user, system, session_id, state="done", owner="", error="")
    return True


def fail(connection: Connection, user: str, system: str, session_id: str, error: str) -> int:
    """Count an attempt that failed; a job that is done stays done. Returns the attempts so far."""
    if _state(connection, user, session_id) != "closed":
        raise BadInput(f"session {session_id!r} of user {user!r} goes on; close it first")
    job = find(connection, user, system, session_id)
    if job is None:
        _insert(connection, user, system, session_id, "pending")
    elif job.state == "done":
        return job.attempts
    attempts = (job.attempts if job else 0) + 1
    _set(connection, user, system, session_id, state="failed", owner="", error=error, attempts=attempts)
    return attempts


def claim(connection: Connection, job: Job) -> bool:
    """This process works on the job from now on; False if it is done or someone else, still alive, works on it."""
    row = connection.execute(select(jobs).where(_of_job(job.user, job.system, job.session))).mappings().first()
    if row is None or row["state"] == "done" or (row["state"] == "running" and _alive(row["owner"])):
        return False
    _set(connection, job.user, job.system, job.session, state="running", owner=_me())
    return True


def release(connection: Connection, job: Job) -> None:
    """Work on the job was given up without a result: it waits again."""
    mine = and_(_of_job(job.user, job.system, job.session), jobs.c.state == "running", jobs.c.owner == _me())
    connection.execute(update(jobs).where(mine).values(state="pending", owner=""))


def waiting(connection: Connection, system: str | None, limit: int, attempts: int) -> list[Job]:
    """Jobs to be done now, of all users and of one system or all, the oldest session first.

    Those that failed `attempts` times are left out, those of a process that is gone are in.
    """
    said = exists().where(turns.c.user == jobs.c.user, turns.c.session == jobs.c.session)
    query = (
        select(jobs)
        .select_from(jobs.join(sessions, and_(sessions.c.user == jobs.c.user, sessions.c.id == jobs.c.session)))
        .where(jobs.c.state != "done", jobs.c.attempts < attempts, said)
        .order_by(sessions.c.number)
    )
    if system is not None:
        query = query.where(jobs.c.system == system)
    found = []
    for row in connection.execute(query).mappings():
        if row["state"] != "running" or not _alive(row["owner"]):
            found.append(_job(row))
        if len(found) == limit:
            break
    return found


def queue_again(connection: Connection, user: str, system: str, session_ids: Sequence[str]) -> None:
    """The sessions are to be remembered again; those that go on are left alone."""
    for part in chunks(sorted(session_ids)):
        known = select(jobs.c.session).where(jobs.c.user == user, jobs.c.system == system, jobs.c.session.in_(part))
        of_closed = and_(sessions.c.user == user, sessions.c.state == "closed", sessions.c.id.in_(part))
        closed = set(connection.execute(select(sessions.c.id).where(of_closed)).scalars())
        old = closed & set(connection.execute(known).scalars())
        of_old = and_(jobs.c.user == user, jobs.c.system == system, jobs.c.session.in_(sorted(old)))
        connection.execute(update(jobs).where(of_old).values(state="pending", owner="", error="", attempts=0))
        for session_id in sorted(closed - old):
            _insert(connection, user, system, session_id, "pending")


def _job(row: RowMapping) -> Job:
    return Job(row["user"], row["system"], row["session"], row["state"], row["attempts"], row["error"])


def _of_job(user: str, system: str, session_id: str) -> ColumnElement[bool]:
    return and_(jobs.c.user == user, jobs.c.session == session_id, jobs.c.system == system)


def _state(connection: Connection, user: str, session_id: str) -> str:
    query = select(sessions.c.state).where(sessions.c.user == user, sessions.c.id == session_id)
    state: str | None = connection.execute(query).scalar()
    if state is None:
        raise NotFound(f"user {user!r} has no session {session_id!r}; `localmem show` lists what there is")
    return state


def _insert(connection: Connection, user: str, system: str, session_id: str, state: JobState) -> None:
    row = {"user": user, "session": session_id, "system": system, "state": state}
    connection.execute(insert(jobs).values(attempts=0, error="", owner="", **row))


def _set(connection: Connection, user: str, system: str, session_id: str, **values: object) -> None:
    connection.execute(update(jobs).where(_of_job(user, system, session_id)).values(**values))


def _me() -> str:
    """This process on this machine; the start time tells it from a later process of the same number."""
    return f"{socket.gethostname()}/{os.getpid()}/{psutil.Process().create_time()}"


def _alive(owner: str) -> bool:
    """Whether the process that owns a job still runs; one on another machine is taken to."""
    host, _, rest = owner.partition("/")
    number, _, started = rest.partition("/")
    if host != socket.gethostname():
        return True
    try:
        return str(psutil.Process(int(number)).create_time()) == started
    except psutil.NoSuchProcess:
        return False
