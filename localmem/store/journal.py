"""The journal of one user and one system: where an agent makes words and changes durable.

Fulfils `localmem.journal.Journal`. Keeps the version of the bank it read: a write against another version is a
Conflict, after which `bank()` gives the bank as it is now. Safe for several threads.
"""

import threading
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from localmem.bank import Bank
from localmem.store import jobs
from localmem.store.change_log import BankLog, Batch
from localmem.store.database import Database
from localmem.store.sessions import one, session_of_turn
from localmem.store.turns import Append, named, to_row
from localmem.store.writer import Writer
from localmem.types import Change, Session, Turn


class StoreJournal:
    """Get one from `Store.journal`. Each call is one transaction, durable on return."""

    def __init__(self, database: Database, writer: Writer, log: BankLog, user: str, system: str) -> None:
        self._database = database
        self._writer = writer
        self._log = log
        self._user = user
        self._system = system
        self._guard = threading.Lock()
        with database.read() as connection:
            self._version = log.version(connection, user, system)

    def bank(self) -> Bank:
        """The bank as committed; later writes are made against it."""
        with self._guard, self._database.read() as connection:
            self._version = self._log.version(connection, self._user, self._system)
            made = self._log.changes(connection, self._user, self._system)
        return Bank().apply(made)

    def is_current(self) -> bool:
        """Whether no other process has touched the bank since it was read or written from here."""
        with self._guard, self._database.read() as connection:
            return self._version == self._log.version(connection, self._user, self._system)

    def add_turns(self, session_id: str, turns: Sequence[Turn]) -> None:
        """Opens the session if it is new. A turn that is there already changes nothing.

        Raises BadInput for a turn whose id is another turn's, for a naive time and for a session that is closed,
        OutOfOrder for a turn older than the one before it. Nothing of a refused call is written.
        """
        if turns:
            self._writer.append(Append(self._user, named("session", session_id), tuple(map(to_row, turns))))

    def commit(self, cause: str, changes: Sequence[Change]) -> None:
        """The changes of one exchange; `cause` is its reply turn. The same cause again changes nothing.

        Raises Conflict on a newer bank, BadInput for changes that this bank cannot apply.
        """
        if not changes:
            return

        def write(connection: Connection, read: int) -> int:
            if self._log.holds(connection, self._user, self._system, "exchange", cause):
                return read
            session = session_of_turn(connection, self._user, cause)
            version = self._log.advance(connection, self._user, self._system, read)
            batch = Batch(self._user, self._system, "exchange", cause, session, tuple(changes))
            self._log.write(connection, batch)
            return version

        self._against_version(write)

    def close(self, session_id: str) -> Session:
        """The session is over and waits to be remembered; again changes nothing. Raises NotFound.

        Gives the session as the log has it, with what other processes added to it.
        """

        def write(connection: Connection) -> Session:
            jobs.close(connection, self._user, self._system, session_id)
            return one(connection, self._user, session_id)

        return self._writer.run(write)

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        """The session is remembered, with its changes; False, and nothing written, if it was before.

        Raises NotFound, Conflict on a newer bank, BadInput for a session that goes on or changes that do not apply.
        """
        done = False

        def write(connection: Connection, read: int) -> int:
            nonlocal done
            done = jobs.finish(connection, self._user, self._system, session_id)
            if not done or not changes:
                return read
            version = self._log.advance(connection, self._user, self._system, read)
            batch = Batch(self._user, self._system, "session", session_id, session_id, tuple(changes))
            self._log.write(connection, batch)
            return version

        self._against_version(write)
        return done

    def fail(self, session_id: str, error: str) -> int:
        """An attempt to remember the session failed. Returns the attempts so far."""
        return self._writer.run(lambda connection: jobs.fail(connection, self._user, self._system, session_id, error))

    def _against_version(self, write: Callable[[Connection, int], int]) -> None:
        with self._guard:
            self._version = self._writer.run(lambda connection: write(connection, self._version))
