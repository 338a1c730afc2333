"""Store: all data of localmem, in one database. One instance per process; safe for many threads.

Stores text and changes, and replays changes into banks. Knows no models, systems or indexes. All queries are of a user.
"""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import Connection

from localmem.bank import Bank
from localmem.journal import Extents
from localmem.retrieval.views import index_texts
from localmem.store import jobs, sessions, undo
from localmem.store.change_log import Batch, ChangeLog, Refusals, UnitHistory, count_refusals, unit_history
from localmem.store.database import Database
from localmem.store.digest_files import FOLDER, DigestFiles
from localmem.store.digest_rows import DigestRows
from localmem.store.encryption import Keys
from localmem.store.erase import Eraser
from localmem.store.erasure import Erasure
from localmem.store.index_files import IndexFiles
from localmem.store.jobs import SessionJob
from localmem.store.receipts import Receipt
from localmem.store.schema import check_seal, migrate
from localmem.store.serialization import ChangeSerializer
from localmem.store.sessions import Backlog, SessionInfo, SessionState
from localmem.store.transfer import ImportSummary, export_lines, import_user, read_export
from localmem.store.turns import Append, Derived, Writer, require_name, to_row
from localmem.store.unit_vectors import VectorRows
from localmem.store.unlogged_messages import UnloggedMessages
from localmem.store.users import UserLookups
from localmem.store.vectors import EmbeddingTable, MemoryVectors
from localmem.types import Change, Session, SetNote, Turn

Result = TypeVar("Result")


class StoreJournal:
    """The journal of one user and one system: an agent writes turns and changes through it. Made by `Store.journal`.

    Implements `localmem.journal.Journal`, for many threads. A write against another version of the bank than was read
    is a Conflict, after which `bank()` returns the current one. Each call is one transaction, durable on return.
    """

    def __init__(
        self, database: Database, writer: Writer, log: ChangeLog, user: str, system: str, refusals: Refusals
    ) -> None:
        self._database, self._writer, self._log = database, writer, log
        self._user, self._system = user, system
        self._refusals, self._guard = refusals, threading.Lock()
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

    def sessions(self) -> list[Session]:
        """All sessions as logged, in order."""
        with self._database.read() as connection:
            return sessions.all_sessions(connection, self._user)

    def session(self, session_id: str) -> Session:
        """The session as logged. Raises NotFound."""
        with self._database.read() as connection:
            return sessions.load_session(connection, self._user, session_id)

    def reread(self, opened: Extents, waiting: Extents) -> tuple[list[Session], list[Session]] | None:
        """The open sessions and those that wait to be remembered, where they are not these; see `Journal`."""
        with self._database.read() as connection:
            if sessions.is_current(connection, self._user, self._system, opened, waiting):
                return None
            pending = sessions.pending_sessions(connection, self._user, self._system)
            return sessions.open_sessions(connection, self._user), pending

    def add_turns(self, session_id: str, turns: Sequence[Turn], after: str = "") -> None:
        """Append turns, and open the session if it is new. A turn that is stored already changes nothing.

        Raises BadInput for a turn whose id belongs to another turn, for a naive time and for a closed session,
        OutOfOrder for a turn older than the one before it, NotFound where the turn `after` was erased. Nothing of a
        refused call is written.
        """
        if turns:
            rows = tuple(map(to_row, turns))
            self._writer.append(Append(self._user, require_name("session", session_id), rows, after))

    def commit(self, cause: str, changes: Sequence[Change], *, derived: bool = False) -> bool:
        """Write the changes of one exchange; `cause` is its reply turn. False, and nothing written, if repeated.

        Does not wait for the disk if `derived`. Raises Conflict for a newer bank, BadInput for what cannot be applied.
        """
        if not changes:
            return False
        is_new = False

        def write(connection: Connection, read: int) -> int:
            nonlocal is_new
            batch = Batch(self._user, self._system, "exchange", cause, None, tuple(changes))
            is_new = self._log.write(connection, batch)
            return self._log.advance(connection, self._user, self._system, read) if is_new else read

        self._against_version(write, derived=derived)
        count_refusals(self._refusals, changes if is_new else ())
        return is_new

    def close(self, session_id: str) -> Session:
        """Close the session and queue it to be remembered; a repeated call changes nothing. Raises NotFound.

        Returns the session as stored, with turns that other processes added.
        """

        def write(connection: Connection) -> Session:
            jobs.close(connection, self._user, self._system, session_id)
            return sessions.load_session(connection, self._user, session_id)

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
        count_refusals(self._refusals, changes if finished else ())
        return finished

    def fail(self, session_id: str, error: str) -> int:
        """Count a failed attempt to remember the session and return the attempts so far."""
        return self._writer.run(lambda connection: jobs.fail(connection, self._user, self._system, session_id, error))

    def _against_version(self, write: Callable[[Connection, int], int], *, derived: bool = False) -> None:
        def run(connection: Connection) -> int:
            return write(connection, self._version)

        with self._guard:
            self._version = self._writer.run(Derived(run) if derived else run)


class Store:
    """Opened with `Store.open`. All methods raise StoreError when the database fails, BadInput for an empty user.

    `embeddings` stores vectors of any encoder, `vectors` those of the one encoder that memories are searched with,
    `unit_vectors` those that pgvector searches; `indexes` are the index files, which contain vectors too. `refusals`
    counts the texts refused since it was opened, `unlogged` tells what is not to be stored when it is sent again.
    """

    def __init__(self, database: Database, indexes: IndexFiles, home: Path | None = None) -> None:
        self._database = database
        self._home = home
        self._log = ChangeLog(database, ChangeSerializer())
        self._writer = Writer(database)
        self.embeddings = EmbeddingTable(database, self._writer)
        self.vectors = MemoryVectors(database, self._writer)
        self.unit_vectors = VectorRows(database, self._writer)
        self.lookups = UserLookups(database)
        self.indexes = indexes
        self.refusals: Refusals = Counter()
        digests = DigestFiles(home / FOLDER if home else None, database.keys)
        self.unlogged = UnloggedMessages(digests if database.files else DigestRows(database, digests))

    @classmethod
    def open(cls, place: str | Path, indexes: Path | None = None, keys: Keys | None = None) -> Self:
        """Open a data directory (created if missing) or a database URL, and migrate it to this version.

        `indexes` is the folder of the index files; default: in the data directory, and none for a URL. With `keys` the
        store is encrypted, and indexes are in memory only. Raises StoreError for a place that cannot be read or
        written, NewerStore for a store of a later localmem.
        """
        database = Database(place, keys)
        try:
            migrate(database)
            check_seal(database)
        except BaseException:
            database.close()
            raise
        folder = indexes or (None if "://" in str(place) else Path(place) / "index")
        return cls(database, IndexFiles(None if keys else folder), folder.parent if folder else None)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def where(self) -> str:
        """The file or URL of the store, for messages; without a password."""
        return self._database.where

    @property
    def server(self) -> str:
        """The database server's name and version; empty for a file."""
        return self._database.server()

    def problems(self) -> list[str]:
        """The inconsistencies in the database, one line each."""
        return self._database.problems()

    # -- the raw log -----------------------------------------------------------------------------------------------

    def users(self) -> list[str]:
        """All users, by name."""
        with self._database.read() as connection:
            return sessions.users(connection)

    def sessions(self, user: str, state: SessionState | None = None) -> list[SessionInfo]:
        """The user's sessions without their text, in order."""
        return self._read(user, lambda connection: sessions.session_infos(connection, user, state))

    def session(self, user: str, session_id: str) -> Session:
        """One session with its turns. Raises NotFound."""
        return self._read(user, lambda connection: sessions.load_session(connection, user, session_id))

    def replies_with(self, user: str, texts: Collection[str]) -> list[str]:
        """The ids of the assistant's turns that contain one of these texts word for word."""
        return self._read(user, lambda connection: sessions.replies_with(connection, user, texts))

    def open_sessions(self, user: str) -> list[Session]:
        """Sessions that are not closed, in order."""
        return self._read(user, lambda connection: sessions.open_sessions(connection, user))

    def pending_sessions(self, user: str, system: str) -> list[Session]:
        """Closed sessions that the system has not remembered, in order."""
        return self._read(user, lambda connection: sessions.pending_sessions(connection, user, system))

    def backlog(self, user: str, system: str) -> Backlog:
        """The size of `pending_sessions`."""
        return self._read(user, lambda connection: sessions.backlog(connection, user, system))

    # -- banks -----------------------------------------------------------------------------------------------------

    def journal(self, user: str, system: str) -> StoreJournal:
        """The journal through which an agent of this user and system writes."""
        require_name("user", user)
        system = require_name("system", system)
        return StoreJournal(self._database, self._writer, self._log, user, system, self.refusals)

    def bank(self, user: str, system: str, as_of: datetime | None = None) -> Bank:
        """The bank now, or as it was at `as_of`."""
        return Bank().apply(self.changes(user, system, as_of))

    def past_bank(self, user: str, system: str, bank: Bank, until: datetime) -> Bank:
        """The bank as it was, made of the units of the present one: as `bank` with `as_of`, without reading them all.

        Links have no time of their own: those between units of then are there.
        """
        units = {name: unit for name, unit in bank.units.items() if unit.learned <= until}
        links = tuple(link for link in bank.links if link.source in units and link.target in units)
        changes = self._read(user, lambda connection: self._log.later_changes(connection, user, system, until, units))
        return Bank(units=units, links=links).apply(changes)

    def changes(self, user: str, system: str, until: datetime | None = None) -> list[Change]:
        """The changes that make up the bank, in order; with `until`, those made by then."""
        require_name("system", system)
        return self._read(user, lambda connection: self._log.changes(connection, user, system, until))

    def version(self, user: str, system: str) -> int:
        """The number of transactions that changed the bank."""
        system = require_name("system", system)
        return self._read(user, lambda connection: self._log.version(connection, user, system) & 0xFFFFFFFF)

    def systems(self, user: str) -> list[str]:
        """The systems with a bank or a job of the user."""
        return self._read(user, lambda connection: self._log.systems(connection, user))

    def unit_keys(self) -> Iterator[str]:
        """The key of every live unit of every bank, for a new encoder; may contain duplicates."""
        for user in self.users():
            for system in self.systems(user):
                yield from (text for unit in self.bank(user, system).live() for text in index_texts(unit))

    def history(self, user: str, system: str, unit_id: str) -> UnitHistory:
        """How a unit came to be, with changes that were undone. Raises NotFound."""
        return self._read(user, lambda connection: unit_history(connection, self._log, user, system, unit_id))

    def undo(self, user: str, system: str, session_id: str) -> list[str]:
        """Take back what the system made of a session; it stays in the history and is not remembered again.

        Batches that depend on it (they name a unit it added, or rewrite its note) are taken back too, and so on, with
        all batches of their sessions. Returns these sessions, in order; the closed ones wait again. Raises NotFound.
        """
        return self._change(user, lambda connection: undo.undo(connection, self._log, user, system, session_id))

    def undo_batch(self, user: str, system: str, cause: str) -> list[str]:
        """Take back one batch that no session made, such as what was hidden at a request; else as `undo`."""
        return self._change(user, lambda connection: undo.undo_batch(connection, self._log, user, system, cause))

    def clear(self, user: str, system: str) -> list[str]:
        """For a rebuild: take back what came from closed sessions, and queue all of these to be remembered again.

        What was added manually stays, unless it depends on something taken back. Returns the sessions, in order.
        """
        return self._change(user, lambda connection: undo.clear(connection, self._log, user, system))

    def note_versions(self, user: str, system: str) -> list[SetNote]:
        """All texts that the notes had, in order; without those that were taken back."""
        return self._read(user, lambda connection: self._log.note_versions(connection, user, system))

    # -- jobs ------------------------------------------------------------------------------------------------------

    def queue_unread(self, system: str) -> int:
        """Queue all users' closed sessions that the system was never given, and return their number."""
        return self._writer.run(lambda connection: jobs.queue_unread(connection, system))

    def pending_jobs(self, attempts: int | None = 3, system: str | None = None) -> list[SessionJob]:
        """Sessions to be remembered, in order of opening, without those that failed `attempts` times, if given."""
        with self._database.read() as connection:
            return jobs.pending(connection, system, attempts)

    def claim(self, job: SessionJob) -> bool:
        """Assign the job to this process; False if it is done or belongs to another process that is alive."""
        self._database.announce(jobs.this_process())
        return self._change(job.user, lambda connection: jobs.claim(connection, job))

    def release(self, job: SessionJob) -> None:
        """Return a claimed job to the queue without counting an attempt."""
        self._change(job.user, lambda connection: jobs.release(connection, job))

    # -- export, import, erasure -----------------------------------------------------------------------------------

    def export(self, user: str) -> Iterator[str]:
        """The user's JSON lines, without line ends, from one consistent snapshot. Raises NotFound."""
        require_name("user", user)
        with self._database.read() as connection:
            yield from export_lines(connection, self._log, user)

    def restore(
        self, lines: Iterable[str], name: str, user: str | None = None, *, with_erased: bool = False
    ) -> ImportSummary:
        """Import an export, for `user` or the user in it; all of it but erased sessions, or nothing after an error.

        `name` is the file for messages. Raises BadInput with the number of a bad line, and for another memory.
        """
        file = read_export(lines, name, user)
        erased = set() if with_erased else self.unlogged.erased_sessions(file.user, file.sessions)
        return self._change(file.user, lambda connection: import_user(connection, self._log, file, erased))

    def delete_units(self, user: str, system: str, *unit_ids: str, sources: bool = False) -> Receipt:
        """Erase units with their earlier versions, and with `sources` their turns and the replies that repeat them.

        An id may be a request to forget: then what it hid. Raises NotFound, with nothing erased.
        """
        what = f"unit {', '.join(unit_ids)}"
        return self._erase(user, what, lambda eraser: eraser.erase_units(system, unit_ids, sources=sources))

    def delete_session(self, user: str, session_id: str) -> Receipt:
        """Erase a session, its turns, and what any system derived from it. Raises NotFound."""
        return self._erase(user, f"session {session_id}", lambda eraser: eraser.erase_session(session_id))

    def delete_user(self, user: str) -> Receipt:
        """Erase all data of a user. Raises NotFound."""
        return self._erase(user, f"user {user}", lambda eraser: eraser.erase_user())

    def _read(self, user: str, query: Callable[[Connection], Result]) -> Result:
        require_name("user", user)
        with self._database.read() as connection:
            return query(connection)

    def _change(self, user: str, change: Callable[[Connection], Result]) -> Result:
        require_name("user", user)
        return self._writer.run(change)

    def _erase(self, user: str, what: str, erase: Callable[[Eraser], None]) -> Receipt:
        require_name("user", user)
        erasure = Erasure(self._database, self._writer, self._log, self.indexes, self.unlogged, self._home)
        return erasure.run(user, what, erase)
