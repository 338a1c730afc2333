"""The connection to the database, and the only place that knows which database it is.

SQLite: WAL, one file, a transaction that writes takes the lock when it begins. PostgreSQL: as its driver does it.
Turns a driver's errors into one line. Knows no tables.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, Insert, Update, create_engine, event, exc
from sqlalchemy.engine import URL, make_url

from localmem.errors import BadInput, Conflict, MissingExtra, StoreError

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

FILE = "memory.db"

# PostgreSQL: one view of the store for a whole transaction, as SQLite gives; and a number for the lock of migrations.
_SNAPSHOT = "REPEATABLE READ"
_LOCK = 0x6C6F6361

# Seconds that a writer waits for another process's transaction before it gives up.
_BUSY = 15

_LOCKED = "{where} was locked by another process for {busy} s; wait for it or stop it, then do it again"

_CAUSES = {
    sqlite3.SQLITE_FULL: "the disk that holds {where} is full; free some space, then do it again",
    sqlite3.SQLITE_READONLY: "{where} cannot be written; make the folder writable or choose another data directory",
    sqlite3.SQLITE_PERM: "{where} cannot be written; make the folder writable or choose another data directory",
    sqlite3.SQLITE_CANTOPEN: "{where} cannot be opened; check that its folder exists and is writable",
    sqlite3.SQLITE_CORRUPT: "{where} is damaged; move it away and import an export or put back a copy",
    sqlite3.SQLITE_NOTADB: "{where} is not a localmem store; choose another data directory or put back a copy",
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_IOERR: "reading or writing {where} failed; check the disk",
}


@dataclass(frozen=True, slots=True)
class ManyRows:
    """A statement for many rows, compiled once: the driver gets the rows without further work on each."""

    sql: str
    names: tuple[str, ...]
    positional: bool

    def run(self, connection: Connection, rows: Sequence[tuple[object, ...]]) -> None:
        """`rows` hold a value for each of `names`, in order."""
        if not rows:
            return
        if self.positional:
            connection.exec_driver_sql(self.sql, [tuple(row) for row in rows])
        else:
            connection.exec_driver_sql(self.sql, [dict(zip(self.names, row, strict=True)) for row in rows])


class Database:
    """An engine with its settings. `where` names it in messages, without a password."""

    def __init__(self, place: str | Path) -> None:
        url = _url(place)
        self.files = _files(url)
        self.where = str(self.files[0]) if self.files else url.render_as_string()
        self._engine = _engine(url, self.where)
        self._writing = self._engine.execution_options(writes=True)
        self._reading = self._engine if self.files else self._engine.execution_options(isolation_level=_SNAPSHOT)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view of the store."""
        with self._told(), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction, durable when the block is left; on an error nothing of it is."""
        with self._told(), self._writing.begin() as connection:
            yield connection

    def many(self, statement: Insert | Update, names: Sequence[str]) -> ManyRows:
        """The statement for rows of these values; their order must be the statement's own."""
        compiled = statement.compile(dialect=self._engine.dialect, column_keys=list(names))
        order = compiled.positiontup
        if order is not None and order != list(names):
            raise ValueError(f"the statement takes {order}, not {list(names)}")
        return ManyRows(compiled.string, tuple(names), positional=order is not None)

    @property
    def mark(self) -> str:
        """How the driver writes a value's place in a statement."""
        return "?" if self._engine.dialect.paramstyle == "qmark" else "%s"

    def alone(self, connection: Connection) -> None:
        """Wait until no other process is in the part of a writing transaction that asked for this."""
        if not self.files:  # a transaction of SQLite that writes is alone from its beginning
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")

    def problems(self) -> list[str]:
        """What is unsound in the files, one line each; empty when all is well."""
        if not self.files:
            return []
        try:
            with self.read() as connection:
                damage = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check") if row[0] != "ok"]
                loose = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        except StoreError as error:  # too damaged to be checked
            return [str(error)]
        return damage + [f"a row of {row[0]} names a row of {row[2]} that is not there" for row in loose]

    def settle(self) -> None:
        """Bring the log's pages into the main file and empty the log, as far as other processes allow."""
        self._outside("PRAGMA wal_checkpoint(TRUNCATE)")

    def repack(self) -> None:
        """Write the main file anew, so that it holds the rows that there are and nothing else."""
        self._outside("VACUUM")
        self.settle()

    def close(self) -> None:
        """Let go of all connections."""
        self._engine.dispose()

    def _outside(self, statement: str) -> None:
        """SQLite only; outside of any transaction."""
        if not self.files:
            return
        with self._told():
            raw = self._engine.raw_connection()
            try:
                cursor = raw.cursor()
                cursor.execute(statement)
                cursor.fetchall()
                cursor.close()
            except sqlite3.Error as error:
                raise StoreError(_cause(error, self.where)) from error
            finally:
                raw.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except exc.IntegrityError as error:
            raise Conflict(f"{self.where} was changed by another process at the same moment; do it again") from error
        except (exc.DBAPIError, exc.TimeoutError) as error:
            raise StoreError(_cause(error, self.where)) from error


def _url(place: str | Path) -> URL:
    if "://" not in str(place):
        return URL.create("sqlite", database=str(_directory(Path(place)) / FILE))
    try:
        url = make_url(str(place))
    except exc.ArgumentError as error:
        raise BadInput(
            f"{place!r} is no database URL; give a folder, or a URL such as postgresql://host/name"
        ) from error
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise BadInput("a store needs a file; give a folder, or a URL such as sqlite:///folder/memory.db")
    return url


def _directory(path: Path) -> Path:
    """The data directory, made when it is not there; it holds private words, so only its owner may look into it."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        (path / FILE).touch(mode=0o600)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be used as data directory ({error.strerror}); make it writable or choose another"
        ) from error
    return path


def _files(url: URL) -> tuple[Path, ...]:
    if url.get_backend_name() != "sqlite" or url.database is None:
        return ()
    main = Path(url.database)
    return main, main.with_name(main.name + "-wal"), main.with_name(main.name + "-journal")


def _engine(url: URL, where: str) -> Engine:
    lite = url.get_backend_name() == "sqlite"
    arguments: dict[str, object] = {"timeout": _BUSY} if lite else {}
    try:
        engine = create_engine(url, connect_args=arguments, pool_size=8, max_overflow=32, pool_timeout=60)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{where} needs the Python package {error.name}; install it with pip") from error
    except exc.SQLAlchemyError as error:
        raise BadInput(f"{where} is no database that localmem can use; give a folder or a PostgreSQL URL") from error
    if lite:
        event.listen(engine, "connect", _tune)
        event.listen(engine, "begin", _begin)
    return engine


def _tune(connection: "DBAPIConnection", _entry: "ConnectionPoolEntry") -> None:
    """Transactions are begun by `_begin`, not by the driver; full sync makes a commit durable in WAL."""
    connection.isolation_level = None
    cursor = connection.cursor()
    for setting in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
    ):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def _begin(connection: Connection) -> None:
    """A transaction that will write takes the lock first: one that read before could not be made to wait."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _cause(error: BaseException, where: str) -> str:
    """One line for a driver's error; of several in a row the first, since a full disk makes the roll-back fail too."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for link in reversed(chain):
        code = getattr(link, "sqlite_errorcode", None)
        if isinstance(code, int) and code & 0xFF in _CAUSES:
            return _CAUSES[code & 0xFF].format(where=where, busy=_BUSY)
    said = str(getattr(error, "orig", None) or error).strip()
    return f"the store at {where} failed: {said.partition(chr(10))[0]}; localmem doctor says more"
