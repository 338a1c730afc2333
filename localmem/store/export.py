"""Export of one user as JSONL: the log itself, so nothing is lost and a round trip is the same bytes.

A header, then sessions in the order they were opened, each with its turns, then the batches of all systems in order,
then jobs. Versions, owners of running jobs and vectors stay behind: they belong to a store, not to a user.
"""

from collections.abc import Iterator

from sqlalchemy import Connection, and_, select

from localmem.errors import NotFound
from localmem.store.change_log import BankLog
from localmem.store.export_lines import BatchLine, Header, JobLine, SessionLine, TurnLine, write
from localmem.store.schema import batches, jobs, sessions, turns
from localmem.store.serialization import from_micros
from localmem.store.sessions import to_turn, users
from localmem.types import Turn


def export_lines(connection: Connection, log: BankLog, user: str) -> Iterator[str]:
    """The user's lines, without line ends. Raises NotFound."""
    if user not in users(connection):
        raise NotFound(f"there is no user {user!r}; `localmem doctor` lists who there is")
    yield write(Header(user=user))
    yield from _sessions(connection, user)
    yield from _batches(connection, log, user)
    yield from _jobs(connection, user)


def _sessions(connection: Connection, user: str) -> Iterator[str]:
    held = select(sessions).where(sessions.c.user == user).order_by(sessions.c.number)
    said = select(turns).where(turns.c.user == user).order_by(turns.c.position)
    for row in connection.execute(held).mappings().all():
        started, ended = from_micros(row["started"]), from_micros(row["ended"])
        yield write(SessionLine(id=row["id"], state=row["state"], started=started, ended=ended))
        for turn in connection.execute(said.where(turns.c.session == row["id"])).mappings():
            yield write(_turn(to_turn(turn)))


def _turn(turn: Turn) -> TurnLine:
    return TurnLine(id=turn.id, role=turn.role, speaker=turn.speaker, text=turn.text, time=turn.time)


def _batches(connection: Connection, log: BankLog, user: str) -> Iterator[str]:
    made = select(batches).where(batches.c.user == user).order_by(batches.c.number)
    for row in connection.execute(made).mappings().all():
        yield write(
            BatchLine(
                system=row["system"],
                of=row["kind"],
                cause=row["cause"],
                session=row["session"],
                state=row["state"],
                changes=log.of_batch(connection, user, row["number"]),
            )
        )


def _jobs(connection: Connection, user: str) -> Iterator[str]:
    of_session = and_(sessions.c.user == jobs.c.user, sessions.c.id == jobs.c.session)
    query = select(jobs).select_from(jobs.join(sessions, of_session)).where(jobs.c.user == user)
    for row in connection.execute(query.order_by(sessions.c.number, jobs.c.system)).mappings():
        yield write(
            JobLine(
                system=row["system"],
                session=row["session"],
                state="pending" if row["state"] == "running" else row["state"],
                attempts=row["attempts"],
                error=row["error"],
            )
        )
