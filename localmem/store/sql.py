"""The store: everything that localmem keeps, in one database. One instance a process; safe for many threads.

Knows no model, no system and no index: it keeps words and changes, and replays them. Every question names a user.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection

from localmem.bank import Bank
from localmem.store import history, jobs, sessions, undo
from localmem.store.change_log import BankLog
from localmem.store.database import Database
from localmem.store.embeddings import EmbeddingTable
from localmem.store.erase import Erased, Eraser
from localmem.store.export import export_lines
from localmem.store.importing import Imported, parse, restore
from localmem.store.index_files import IndexFiles
from localmem.store.journal import StoreJournal
from localmem.store.migrate import prepare
from localmem.store.proof import prove
from localmem.store.records import Job, Receipt, SessionInfo, SessionState, UnitHistory, Unread
from localmem.store.serialization import ChangeCodec
from localmem.store.turns import named
from localmem.store.vectors import MemoryVectors
from localmem.store.writer import Writer
from localmem.types import Change, Session

Answer = TypeVar("Answer")


class Store:
    """Open one with `Store.open`. Errors: StoreError for trouble with the database, BadInput for an empty user.

    `embeddings` keeps vectors of any encoder, `vectors` those that memories are searched with, of one encoder;
    `indexes` are the files beside the database that hold vectors too.
    """

    def __init__(self, database: Database, indexes: IndexFiles) -> None:
        self._database = database
        self._log = BankLog(database, ChangeCodec())
        self._writer = Writer(database)
        self.embeddings = EmbeddingTable(database, self._writer)
        self.vectors = MemoryVectors(database, self._writer, self.embeddings)
        self.indexes = indexes

    @classmethod
    def open(cls, place: str | Path, indexes: Path | None = None) -> Self:
        """A data directory (made when it is not there) or a database URL, brought to this version's shape.

        `indexes` is the folder of index files; default: in the data directory, and none beside a URL.
        Raises StoreError for a place that cannot be written or read, NewerStore for a store of a later localmem.
        """
        database = Database(place)
        try:
            prepare(database)
        except BaseException:
            database.close()
            raise
        beside = indexes or (None if "://" in str(place) else Path(place) / "index")
        return cls(database, IndexFiles(beside))

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def where(self) -> str:
        """The store's file or address, for messages; without a password."""
        return self._database.where

    def problems(self) -> list[str]:
        """What is unsound in the database, one line each."""
        return self._database.problems()

    # -- the raw log -----------------------------------------------------------------------------------------------

    def users(self) -> list[str]:
        """Everyone the store knows, by name."""
        with self._database.read() as connection:
            return sessions.users(connection)

    def sessions(self, user: str, state: SessionState | None = None) -> list[SessionInfo]:
        """The user's sessions without their words, in the order they were held."""
        return self._ask(user, lambda connection: sessions.infos(connection, user, state))

    def session(self, user: str, session_id: str) -> Session:
        """Raises NotFound."""
        return self._ask(user, lambda connection: sessions.one(connection, user, session_id))

    def open_sessions(self, user: str) -> list[Session]:
        """Sessions that go on, in order."""
        return self._ask(user, lambda connection: sessions.going_on(connection, user))

    def unfinished(self, user: str, system: str) -> list[Session]:
        """Closed sessions that the system has not remembered yet, in order."""
        return self._ask(user, lambda connection: sessions.unfinished(connection, user, system))

    def unread(self, user: str, system: str) -> Unread:
        """How much `unfinished` would give."""
        return self._ask(user, lambda connection: sessions.unread(connection, user, system))

    # -- banks -----------------------------------------------------------------------------------------------------

    def journal(self, user: str, system: str) -> StoreJournal:
        """Where an agent of this user and system writes."""
        return StoreJournal(self._database, self._writer, self._log, named("user", user), named("system", system))

    def bank(self, user: str, system: str, as_of: datetime | None = None) -> Bank:
        """The bank now, or as it stood at `as_of`."""
        return Bank().apply(self.changes(user, system, as_of))

    def changes(self, user: str, system: str, until: datetime | None = None) -> list[Change]:
        """The changes that make the bank, in order; with `until` those made by then."""
        named("system", system)
        return self._ask(user, lambda connection: self._log.changes(connection, user, system, until))

    def version(self, user: str, system: str) -> int:
        """How many transactions have touched the bank."""
        return self._ask(user, lambda connection: self._log.version(connection, user, named("system", system)))

    def systems(self, user: str) -> list[str]:
        """The systems that keep something for the user."""
        return self._ask(user, lambda connection: self._log.systems(connection, user))

    def unit_keys(self) -> Iterator[str]:
        """The key of every live unit of every bank, for a new encoder; some may come twice."""
        for user in self.users():
            for system in self.systems(user):
                yield from (unit.key for unit in self.bank(user, system).live())

    def history(self, user: str, system: str, unit_id: str) -> UnitHistory:
        """How one unit came to be, with what was taken back. Raises NotFound."""
        return self._ask(user, lambda connection: history.history(connection, self._log, user, system, unit_id))

    def undo(self, user: str, system: str, session_id: str) -> list[str]:
        """Take back what the system made of a session; it stays in history, and is not read again.

        Later batches that stand on it (they name a unit it brought in, or write its note anew) are taken back too, and
        theirs, with all batches of their sessions. Returns these sessions, in order: the closed ones wait to be
        remembered again. Raises NotFound.
        """
        return self._change(user, lambda connection: undo.undo(connection, self._log, user, system, session_id))

    def clear(self, user: str, system: str) -> list[str]:
        """For a rebuild: take back what came of closed sessions and let all of these wait to be remembered again.

        What was added by hand stays, unless it stands on something taken back. Returns the sessions, in order.
        """
        return self._change(user, lambda connection: undo.clear(connection, self._log, user, system))

    # -- jobs ------------------------------------------------------------------------------------------------------

    def pending_jobs(self, limit: int = 100, attempts: int = 3, system: str | None = None) -> list[Job]:
        """Sessions to be remembered, of all users and of `system` or all; for a worker.

        Without those that failed `attempts` times; the session opened first comes first.
        """
        with self._database.read() as connection:
            return jobs.waiting(connection, system, limit, attempts)

    def claim(self, job: Job) -> bool:
        """Take the job on; False when it is done, or another process that is alive works on it."""
        return self._change(job.user, lambda connection: jobs.claim(connection, job))

    def release(self, job: Job) -> None:
        """Give a claimed job back, untried."""
        self._change(job.user, lambda connection: jobs.release(connection, job))

    # -- in, out and away ------------------------------------------------------------------------------------------

    def export(self, user: str) -> Iterator[str]:
        """The user's JSONL lines, without line ends, from one consistent view. Raises NotFound."""
        named("user", user)
        with self._database.read() as connection:
            yield from export_lines(connection, self._log, user)

    def restore(self, lines: Iterable[str], name: str, user: str | None = None) -> Imported:
        """Import an export, for `user` or under its own name; all of it or nothing. `name` names it in messages.

        Raises BadInput with the number of a bad line, and for a user who has another memory already.
        """
        file = parse(lines, name, user)
        return self._change(file.user, lambda connection: restore(connection, self._log, file))

    def delete_unit(self, user: str, system: str, unit_id: str, *, sources: bool = False) -> Receipt:
        """Erase a unit with all that names it; with `sources` also its turns and whatever was drawn from those.

        Raises NotFound.
        """
        return self._erase(user, f"unit {unit_id}", lambda eraser: eraser.unit(system, unit_id, sources=sources))

    def delete_session(self, user: str, session_id: str) -> Receipt:
        """Erase a session, its turns, and whatever was drawn from it in any system. Raises NotFound."""
        return self._erase(user, f"session {session_id}", lambda eraser: eraser.session(session_id))

    def delete_user(self, user: str) -> Receipt:
        """Erase all of a user. Raises NotFound."""
        return self._erase(user, f"user {user}", lambda eraser: eraser.everything())

    # -- inside ----------------------------------------------------------------------------------------------------

    def _ask(self, user: str, question: Callable[[Connection], Answer]) -> Answer:
        named("user", user)
        with self._database.read() as connection:
            return question(connection)

    def _change(self, user: str, change: Callable[[Connection], Answer]) -> Answer:
        named("user", user)
        return self._writer.run(change)

    def _erase(self, user: str, what: str, erase: Callable[[Eraser], Erased]) -> Receipt:
        files = self.indexes.forget(named("user", user))  # before the rows, so that no crash in between leaves one
        erased = self._change(user, lambda connection: erase(Eraser(connection, self._log, user)))
        files += self.indexes.forget(user)  # one that was written meanwhile
        checked, left = prove(self._database, erased.texts, self.indexes.paths())
        left = left if left is None else left + len(self.indexes.of(user))
        erased.rows["index files"] = files
        rows = {table: count for table, count in sorted(erased.rows.items()) if count}
        return Receipt(what, rows, checked, left, erased.again, erased.sources)
