"""The connection to the database, and the only module that depends on which database it is.

SQLite: one file in WAL mode, and a writing transaction takes the lock when it begins. PostgreSQL: the defaults of its
driver, with snapshot reads. Translates errors of the drivers into one line. Does not depend on the tables.
"""

import sqlite3
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, Insert, Update, create_engine, event, exc
from sqlalchemy.engine import URL, make_url

from localmem.errors import BadInput, Conflict, MissingExtra, StoreError, without_passwords
from localmem.store import postgres
from localmem.store.cipher import check_header, connector, load_driver

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
    from sqlalchemy.pool import ConnectionPoolEntry

    from localmem.store.encryption import Keys

FILE = "memory.db"

# On PostgreSQL: the isolation level that gives a transaction one snapshot, as SQLite does; and the key of the advisory
# lock for migrations (the bytes of "loca", any number that no other program is likely to use).
_SNAPSHOT = "REPEATABLE READ"
_MIGRATION_LOCK = 0x6C6F6361

# Seconds that a writer waits for the transaction of another process before it gives up.
_BUSY = 15
_RETRY = 0.01  # seconds between attempts where SQLite itself does not wait

_POOL: Mapping[str, int] = {"pool_size": 8, "max_overflow": 32, "pool_timeout": 60}

_LOCKED = "{where} was locked by another process for {busy} s; wait for it or stop it, then try again"

_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk that holds {where} is full; free some space, then try again",
    sqlite3.SQLITE_READONLY: "{where} cannot be written; make the folder writable or choose another data directory",
    sqlite3.SQLITE_PERM: "{where} cannot be written; make the folder writable or choose another data directory",
    sqlite3.SQLITE_CANTOPEN: "{where} cannot be opened; check that its folder exists and is writable",
    sqlite3.SQLITE_CORRUPT: "{where} is damaged; move it away and import an export or restore a backup",
    sqlite3.SQLITE_NOTADB: "{where} is not a localmem store; choose another data directory or restore a backup",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_IOERR: "reading or writing {where} failed; check the disk",
}


@dataclass(frozen=True, slots=True)
class RowStatement:
    """A statement for many rows, compiled once. SQLAlchemy would otherwise process every row before the driver does."""

    sql: str
    names: tuple[str, ...]
    positional: bool

    def run(self, connection: Connection, rows: Sequence[tuple[object, ...]]) -> None:
        """Execute it for rows with a value for each of `names`, in order."""
        if not rows:
            return
        if self.positional:
            connection.exec_driver_sql(self.sql, [tuple(row) for row in rows])
        else:
            connection.exec_driver_sql(self.sql, [dict(zip(self.names, row, strict=True)) for row in rows])


class Database:
    """An engine with its settings. `where` is its file or URL for messages, without a password.

    With `keys` the file is encrypted, and texts are sealed by `seal`; `schema.SealedText` opens them as they are read.
    Raises StoreError for a file that is encrypted without keys, or is not with them.
    """

    def __init__(self, place: str | Path, keys: "Keys | None" = None) -> None:
        url = _url(place)
        main = Path(url.database or "")
        sqlite_files = (main, main.with_name(main.name + "-wal"), main.with_name(main.name + "-journal"))
        self.files = sqlite_files if url.get_backend_name() == "sqlite" else ()
        self.where = str(self.files[0]) if self.files else without_passwords(url.render_as_string())
        self.keys = keys
        if self.files:
            check_header(main, with_keys=keys is not None)
        self._engine = _engine(url, self.where, keys)
        self._writing = self._engine.execution_options(writes=True)
        self._unsynced = self._engine.execution_options(writes=True, sync="NORMAL")
        self._reading = self._engine if self.files else self._engine.execution_options(isolation_level=_SNAPSHOT)
        self._presence = None if self.files else postgres.Presence(self._engine)
        self._closed = False
        self._name = uuid.uuid4().hex  # by which it knows its own notifications
        self.lock_rows = "" if self.files else " FOR UPDATE OF t"  # on SQLite a writing transaction is alone

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that reads: one consistent snapshot of the store."""
        with self._translated_errors(), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[Connection]:
        """A transaction that writes: durable after the block, and without any effect if the block raises.

        One that is not durable may be lost in a power cut until the next one that is; SQLite then need not wait for the
        disk.
        """
        with self._translated_errors(), (self._writing if durable else self._unsynced).begin() as connection:
            yield connection

    def row_statement(self, statement: Insert | Update, names: Sequence[str]) -> RowStatement:
        """The statement for rows of these values; their order must be that of the statement."""
        compiled = statement.compile(dialect=self._engine.dialect, column_keys=list(names))
        order = compiled.positiontup
        if order is not None and order != list(names):
            raise ValueError(f"the columns of the statement are {order}, not {list(names)}")
        return RowStatement(compiled.string, tuple(names), positional=order is not None)

    @property
    def placeholder(self) -> str:
        """How the driver writes a parameter in a statement."""
        return "?" if self._engine.dialect.paramstyle == "qmark" else "%s"

    def seal(self, user: str, text: str) -> str:
        """The text as it is stored: under the user's key where the store is encrypted."""
        return self.keys.seal(user, text) if self.keys else text

    def unseal(self, text: str) -> str:
        """What was sealed. Raises KeyDestroyed."""
        return self.keys.open(text) if self.keys else text

    def announce(self, owner: str) -> None:
        """Let processes on other machines see that this one is alive, under this name; see `postgres.Presence`."""
        if self._presence:
            with self._translated_errors():
                self._presence.announce(owner)

    def notify_change(self, connection: Connection, user: str) -> None:
        """At the end of this transaction, let other stores know that a bank of the user was changed."""
        if self._presence:
            postgres.notify_change(connection, self._name, user)

    def watch(self, on_change: Callable[[str], None]) -> postgres.Listener | None:
        """Call this with each user whose bank another store of the database changes, until it is closed."""
        return postgres.Listener(self._engine, self._name, on_change) if self._presence else None

    def lock_migrations(self, connection: Connection) -> None:
        """Wait until no other process migrates; until the end of the transaction, no other one will."""
        if not self.files:  # on SQLite the lock of a writing transaction excludes others already
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")

    def server(self) -> str:
        """The server's name and version; empty for a file."""
        if self.files:
            return ""
        with self.read() as connection:
            return f"PostgreSQL {connection.exec_driver_sql('SHOW server_version').scalar_one()}"

    def size(self) -> int:
        """Bytes on the disk, indexes included and write-ahead logs of PostgreSQL left out."""
        if self.files:
            return sum(file.stat().st_size for file in self.files if file.exists())
        with self.read() as connection:
            return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())

    def problems(self) -> list[str]:
        """The inconsistencies in the files, one line each; empty when there are none."""
        if not self.files:
            return []
        try:
            with self.read() as connection:
                damage = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check") if row[0] != "ok"]
                dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        except StoreError as error:  # too damaged to be checked
            return [str(error)]
        return damage + [f"a row of {row[0]} refers to a missing row of {row[2]}" for row in dangling]

    def checkpoint(self) -> None:
        """Move the pages of the write-ahead log into the main file and empty it, as far as other readers allow."""
        self._run_outside("PRAGMA wal_checkpoint(TRUNCATE)")

    def vacuum(self) -> None:
        """Rewrite the main file, so that it contains only the existing rows."""
        self._run_outside("VACUUM")
        self.checkpoint()

    def close(self) -> None:
        """Close all connections, and refuse new ones: those would be of nobody who closes them."""
        self._closed = True
        if self._presence:
            self._presence.close()
        self._engine.dispose()

    def _run_outside(self, statement: str) -> None:
        """Outside of any transaction; on SQLite only."""
        if not self.files:
            return
        with self._translated_errors():
            raw = self._engine.raw_connection()
            try:
                cursor = raw.cursor()
                cursor.execute(statement)
                cursor.fetchall()
                cursor.close()
            except self._engine.dialect.loaded_dbapi.Error as error:
                raise StoreError(_cause(error, self.where)) from error
            finally:
                raw.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        if self._closed:
            raise StoreError("this LocalMem is closed; make a new one")
        try:
            yield
        except (exc.DBAPIError, exc.TimeoutError) as error:
            if isinstance(error, exc.IntegrityError) or postgres.is_retriable(error):
                raise Conflict(f"{self.where} was changed by another process at the same time; try again") from error
            raise StoreError(_cause(error, self.where)) from error


def _url(place: str | Path) -> URL:
    if "://" not in str(place):
        return URL.create("sqlite", database=str(_directory(Path(place)) / FILE))
    try:
        url = postgres.with_driver(make_url(str(place)))
    except (exc.ArgumentError, ValueError) as error:  # the latter for a port that is no number
        shown = without_passwords(repr(place))
        raise BadInput(
            f"{shown} is not a database URL; give a folder, or a URL such as postgresql://host/name"
        ) from error
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise BadInput("an SQLite store needs a file; give a folder, or a URL such as sqlite:///folder/memory.db")
    return url


def _directory(path: Path) -> Path:
    """The data directory, created if missing. It contains private conversations, so only its owner may read it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (path / FILE).touch(mode=0o600)
    except OSError as error:
        raise StoreError(
            f"cannot use {path} as data directory ({error.strerror}); make it writable or choose another"
        ) from error
    return path


def _engine(url: URL, where: str, keys: "Keys | None") -> Engine:
    is_sqlite = url.get_backend_name() == "sqlite"
    arguments: dict[str, object] = {"timeout": _BUSY} if is_sqlite else {}
    options = {"module": load_driver()} if is_sqlite and keys else {}
    try:  # a server's connection is tried before use: after its restart the first requests would fail otherwise
        engine = create_engine(url, connect_args=arguments, pool_pre_ping=not is_sqlite, **_POOL, **options)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{where} needs the Python package {error.name}; install it with pip") from error
    except exc.SQLAlchemyError as error:
        raise BadInput(f"{where} is not a supported database; give a folder or a PostgreSQL URL") from error
    engine.dialect.localmem_keys = keys  # type: ignore[attr-defined]  # where SealedText, which has no other, reads it
    if is_sqlite and keys:
        event.listen(engine, "do_connect", connector(keys.derive("database")))
    if is_sqlite:
        event.listen(engine, "connect", _configure)
        event.listen(engine, "begin", _begin)
    else:
        event.listen(engine, "first_connect", postgres.check_version)
    return engine


def _configure(connection: "DBAPIConnection", _entry: "ConnectionPoolEntry") -> None:
    """Set up a new SQLite connection."""
    # Python's driver would begin a transaction by itself at the first write, without the lock; `_begin` does it.
    connection.isolation_level = None
    cursor = connection.cursor()
    _write_ahead(cursor)
    for setting in (
        # Off by default in SQLite; a turn without a session, or a change without a batch, is refused.
        "foreign_keys = ON",
        # Deleted rows are overwritten with zeros, so that an erasure need not rewrite the file in most cases.
        "secure_delete = ON",
    ):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def _write_ahead(cursor: "DBAPICursor") -> None:
    """Let readers see the last commit while a writer works; in the rollback mode each would wait for the other.

    For the change of a new file SQLite does not wait until another process has made it, whatever the timeout.
    """
    deadline = monotonic() + _BUSY
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except Exception as error:  # of whichever driver
            if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY or monotonic() > deadline:
                raise
            sleep(_RETRY)
        else:
            return


def _begin(connection: Connection) -> None:
    """Begin a transaction; one that will write takes the write lock at once.

    A transaction that reads first and asks for the lock later fails with SQLITE_BUSY, whatever the timeout, if another
    has written in between: its snapshot is out of date. With the lock first, it waits instead.
    """
    options = connection.get_execution_options()
    if options.get("writes", False):
        # In WAL mode NORMAL does not sync at a commit: a power cut could lose turns that were acknowledged.
        connection.exec_driver_sql(f"PRAGMA synchronous = {options.get('sync', 'FULL')}")
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("BEGIN")


def _cause(error: BaseException, where: str) -> str:
    """One line for the error of a driver; of a chain the first, because a full disk makes the rollback fail too."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for link in reversed(chain):
        code = getattr(link, "sqlite_errorcode", None)
        if isinstance(code, int) and code & 0xFF in _CAUSES:
            return _CAUSES[code & 0xFF].format(where=where, busy=_BUSY)
    if line := postgres.describe_error(error, where):
        return line
    message = str(getattr(error, "orig", None) or error).strip()
    return f"the store at {where} failed: {message.partition(chr(10))[0]}; run `localmem doctor`"
