"""The journal of one user and one system: an agent writes turns and changes through it.

Implements `localmem.journal.Journal`. It remembers which version of the bank was read; a write against another version
is a Conflict, after which `bank()` returns the current bank. Safe for many threads.
"""

import threading
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from localmem.bank import Bank
from localmem.store import jobs
from localmem.store.change_log import Batch, ChangeLog
from localmem.store.database import Database
from localmem.store.sessions import load_session, session_of_turn
from localmem.store.turns import Append, require_name, to_row
from localmem.store.writer import Writer
from localmem.types import Change, Session, Turn


class StoreJournal:
    """Made by `Store.journal`. Each call is one transaction, durable on return."""

    def __init__(self, database: Database, writer: Writer, log: ChangeLog, user: str, system: str) -> None:
        self._database = database
        self._writer = writer
        self._log = log
        self._user = user
        self._system = system
        self._guard = threading.Lock()
        with database.read() as connection:
            self._version = log.version(connection, user, system)

    def bank(self) -> Bank:
        """The bank as committed; later writes are checked against its version."""
        with self._guard, self._database.read() as connection:
            self._version = self._log.version(connection, self._user, self._system)
            changes = self._log.changes(connection, self._user, self._system)
        return Bank().apply(changes)

    def is_current(self) -> bool:
        """Whether no other process has changed the bank since this journal read or wrote it."""
        with self._guard, self._database.read() as connection:
            return self._version == self._log.version(connection, self._user, self._system)

    def add_turns(self, session_id: str, turns: Sequence[Turn]) -> None:
        """Append turns, and open the session if it is new. A turn that is stored already changes nothing.

        Raises BadInput for a turn whose id belongs to another turn, for a naive time and for a closed session,
        OutOfOrder for a turn older than the one before it. Nothing of a refused call is written.
        """
        if turns:
            self._writer.append(Append(self._user, require_name("session", session_id), tuple(map(to_row, turns))))

    def commit(self, cause: str, changes: Sequence[Change]) -> None:
        """Write the changes of one exchange; `cause` is its reply turn. A repeated cause changes nothing.

        Raises Conflict for a newer bank, BadInput for changes that cannot be applied.
        """
        if not changes:
            return

        def write(connection: Connection, read: int) -> int:
            if self._log.has_batch(connection, self._user, self._system, "exchange", cause):
                return read
            session = session_of_turn(connection, self._user, cause)
            version = self._log.advance(connection, self._user, self._system, read)
            self._log.write(connection, Batch(self._user, self._system, "exchange", cause, session, tuple(changes)))
            return version

        self._against_version(write)

    def close(self, session_id: str) -> Session:
        """Close the session and queue it to be remembered; a repeated call changes nothing. Raises NotFound.

        Returns the session as stored, with turns that other processes added.
        """

        def write(connection: Connection) -> Session:
            jobs.close(connection, self._user, self._system, session_id)
            return load_session(connection, self._user, session_id)

        return self._writer.run(write)

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        """Mark the session as remembered and write its changes; False, with nothing written, if it was before.

        Raises NotFound, Conflict for a newer bank, BadInput for an open session or changes that cannot be applied.
        """
        finished = False

        def write(connection: Connection, read: int) -> int:
            nonlocal finished
            finished = jobs.finish(connection, self._user, self._system, session_id)
            if not finished or not changes:
                return read
            version = self._log.advance(connection, self._user, self._system, read)
            batch = Batch(self._user, self._system, "session", session_id, session_id, tuple(changes))
            self._log.write(connection, batch)
            return version

        self._against_version(write)
        return finished

    def fail(self, session_id: str, error: str) -> int:
        """Count a failed attempt to remember the session and return the attempts so far."""
        return self._writer.run(lambda connection: jobs.fail(connection, self._user, self._system, session_id, error))

    def _against_version(self, write: Callable[[Connection, int], int]) -> None:
        with self._guard:
            self._version = self._writer.run(lambda connection: write(connection, self._version))
