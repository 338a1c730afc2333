"""Exports one user as JSON lines: the log itself, so nothing is lost and a round trip gives the same bytes.

A header, then sessions in the order they were opened, each with its turns, then the batches of all systems in order,
then jobs. Versions, owners of running jobs and vectors are not exported: they belong to a store, not to a user.
"""

from collections.abc import Iterator

from sqlalchemy import Connection, and_, select

from localmem.store.change_log import ChangeLog
from localmem.store.export_lines import BatchLine, Header, JobLine, SessionLine, TurnLine, write_line
from localmem.store.schema import batches, jobs, sessions, turns
from localmem.store.serialization import from_micros
from localmem.store.sessions import no_user, to_turn, users


def export_lines(connection: Connection, log: ChangeLog, user: str) -> Iterator[str]:
    """The user's lines, without line ends. Raises NotFound."""
    if user not in users(connection):
        raise no_user(user)
    yield write_line(Header(user=user))
    yield from _session_lines(connection, user)
    yield from _batch_lines(connection, log, user)
    yield from _job_lines(connection, user)


def _session_lines(connection: Connection, user: str) -> Iterator[str]:
    of_user = select(sessions).where(sessions.c.user == user).order_by(sessions.c.number)
    in_order = select(turns).where(turns.c.user == user).order_by(turns.c.position)
    for row in connection.execute(of_user).mappings().all():
        started, ended = from_micros(row["started"]), from_micros(row["ended"])
        yield write_line(SessionLine(id=row["id"], state=row["state"], started=started, ended=ended))
        for turn_row in connection.execute(in_order.where(turns.c.session == row["id"])).mappings():
            turn = to_turn(turn_row)
            yield write_line(TurnLine(id=turn.id, role=turn.role, speaker=turn.speaker, text=turn.text, time=turn.time))


def _batch_lines(connection: Connection, log: ChangeLog, user: str) -> Iterator[str]:
    of_user = select(batches).where(batches.c.user == user).order_by(batches.c.number)
    for row in connection.execute(of_user).mappings().all():
        yield write_line(
            BatchLine(
                system=row["system"],
                of=row["kind"],
                cause=row["cause"],
                session=row["session"],
                state=row["state"],
                changes=log.of_batch(connection, user, row["number"]),
            )
        )


def _job_lines(connection: Connection, user: str) -> Iterator[str]:
    of_session = and_(sessions.c.user == jobs.c.user, sessions.c.id == jobs.c.session)
    query = select(jobs).select_from(jobs.join(sessions, of_session)).where(jobs.c.user == user)
    for row in connection.execute(query.order_by(sessions.c.number, jobs.c.system)).mappings():
        yield write_line(
            JobLine(
                system=row["system"],
                session=row["session"],
                state="pending" if row["state"] == "running" else row["state"],
                attempts=row["attempts"],
                error=row["error"],
            )
        )
