"""What is different on PostgreSQL: its driver, its errors in one line, and how processes see what another does.

A process that works on a job holds an advisory lock for as long as its connection lives, so a server that died, on
whatever machine, is known to be gone at once and without clocks. Does not depend on the tables.
"""

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, exc, text
from sqlalchemy.engine import URL

from localmem.errors import LocalmemError, StoreError

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.pool import ConnectionPoolEntry

log = logging.getLogger(__name__)

OLDEST = 14  # the oldest major version that is still maintained, and tested here against a later one

# After these the same transaction may succeed: it lost against another one.
_RETRIABLE = ("40001", "40P01")

# By SQLSTATE, the longest beginning first: https://www.postgresql.org/docs/current/errcodes-appendix.html
_CAUSES = {
    "28": "{where} refuses the user or the password; correct the database URL",
    "3D000": "{where} does not exist; make the database with createdb, or correct the database URL",
    "42501": "the user of {where} lacks a right ({message}); make it the owner of the database",
    "25006": "{where} is read-only, a standby perhaps; name the primary server in the database URL",
    "53100": "the disk of the server of {where} is full; free some space, then try again",
    "53300": "the server of {where} has no connection left; raise its max_connections, which each `localmem serve` "
    "takes up to 40 of",
    "57P": "the server of {where} is stopping or starting; try again in a moment",
}
_UNREACHABLE = "no PostgreSQL server answers at {where} ({message}); start it, or correct the database URL"

# The server drops a dead client's connection, and with it the lock, after about half a minute instead of two hours.
_KEEPALIVE = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 4"


def with_driver(url: URL) -> URL:
    """A URL of PostgreSQL without a driver gets psycopg's; any other is returned as it is."""
    return url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url


def check_version(connection: "DBAPIConnection", _entry: "ConnectionPoolEntry") -> None:
    """Called with the first connection. Raises StoreError for a server that is too old."""
    version: int = connection.info.server_version  # psycopg's, such as 160014
    if version < 10_000 * OLDEST:
        raise StoreError(f"PostgreSQL {version // 10_000} is too old for a store; use {OLDEST} or later")


def is_retriable(error: BaseException) -> bool:
    """Whether the transaction lost against another one and may be repeated."""
    return _state(error) in _RETRIABLE


def describe_error(error: BaseException, where: str) -> str | None:
    """One line for an error of the server or of reaching it; None where there is no better line than its message."""
    state, message = _state(error), str(getattr(error, "orig", error)).partition("\n")[0].strip()
    for beginning, line in _CAUSES.items():
        if state.startswith(beginning) or (not state and _names_state(message, beginning)):
            return line.format(where=where, message=message)
    ours = type(getattr(error, "orig", None)).__module__.startswith("psycopg")
    unreachable = ours and isinstance(error, exc.OperationalError) and not state
    return _UNREACHABLE.format(where=where, message=message) if unreachable else None


def _state(error: BaseException) -> str:
    return str(getattr(getattr(error, "orig", error), "sqlstate", None) or "")


# libpq reports what a server answers to a new connection as a text without a code.
_TEXTS = {
    "28": "authentication failed",
    "3D000": "does not exist",
    "53300": "too many clients",
    "57P": "is starting up",
}


def _names_state(message: str, beginning: str) -> bool:
    return beginning in _TEXTS and _TEXTS[beginning] in message


def is_alive(connection: Connection, owner: str) -> bool:
    """Whether the process of this name holds its lock, see `Presence`."""
    free: bool = connection.execute(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _key(owner)}).scalar_one()
    return not free


class Presence:
    """Holds the lock that tells others that this process is alive, on a connection of its own; for many threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._guard = threading.Lock()
        self._connection: Connection | None = None

    def announce(self, owner: str) -> None:
        """Hold the lock of this name, which other stores of the process share; again where the connection was lost.

        Raises the driver's errors.
        """
        with self._guard:
            if self._connection is not None:
                try:
                    self._connection.execute(text("SELECT 1"))
                    return
                except exc.DBAPIError:
                    self._connection.invalidate()
                    self._connection.close()
                    self._connection = None
            connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            connection.exec_driver_sql(_KEEPALIVE)
            connection.execute(text("SELECT pg_advisory_lock_shared(:key)"), {"key": _key(owner)})
            self._connection = connection

    def close(self) -> None:
        """Give the lock back."""
        with self._guard:
            if self._connection is not None:
                self._connection.invalidate()  # closed and not pooled: the lock lives as long as the connection
                self._connection.close()
                self._connection = None


_CHANNEL = "localmem_banks"
_RECONNECT = 5.0  # seconds until the next attempt to listen
_TURN = 1.0  # seconds after which a listener looks whether to stop


def notify_change(connection: Connection, sender: str, user: str) -> None:
    """At the end of this transaction, let the listeners of other stores know that a bank of the user was changed."""
    connection.exec_driver_sql("SELECT pg_notify(%s, %s)", (_CHANNEL, f"{sender} {user}"))


class Listener:
    """A thread that calls `on_change` with each user whose bank another store than `own` has changed.

    A hint and no more: what is notified while no connection is there is lost, so a reader asks for the version as well.
    """

    def __init__(self, engine: Engine, own: str, on_change: Callable[[str], None]) -> None:
        self._engine, self._own, self._on_change = engine, own, on_change
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bank-changes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait for the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        import psycopg

        while not self._stopping.is_set():
            try:
                with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    connection.exec_driver_sql(f"LISTEN {_CHANNEL}")
                    driver = connection.connection.driver_connection
                    try:
                        while driver is not None and not self._stopping.is_set():
                            self._pass_on([note.payload for note in driver.notifies(timeout=_TURN)])
                    finally:
                        connection.invalidate()  # closed and not pooled: the next user of it does not listen
            except (exc.DBAPIError, psycopg.Error) as error:
                log.info("not listening for changes of banks: %s", error)
                self._stopping.wait(_RECONNECT)

    def _pass_on(self, payloads: Sequence[str]) -> None:
        pairs = [payload.partition(" ") for payload in payloads]
        for user in dict.fromkeys(user for sender, _, user in pairs if sender != self._own):
            try:
                self._on_change(user)
            except LocalmemError as error:  # the user's next request meets it again
                log.info("cannot take over the memory of a user: %s", error)


def _key(owner: str) -> int:
    return int.from_bytes(hashlib.blake2b(owner.encode(), digest_size=8).digest(), "big", signed=True)
