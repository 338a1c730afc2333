"""Group commit: writes that many threads request at the same moment share one transaction.

A durable commit costs one sync of the disk, a few milliseconds on an SSD, and SQLite admits one writer at a time. With
a transaction for each request, a hundred users who speak at once would wait for a hundred syncs in a row. Here one
thread writes for all that wait, so they share a sync, and those that arrive meanwhile form the next batch (`batching`).

Sharing must not couple requests: one that is refused may not undo its neighbours. Appends, the frequent kind, are
checked in memory before anything is written and so never fail in the database. Any other operation runs inside a
savepoint, which costs two more statements and rolls back alone.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from sqlalchemy import Connection

from localmem.batching import Batched
from localmem.errors import Conflict, LocalmemError, PartialFailure
from localmem.store.database import Database
from localmem.store.turns import Append, TurnLog

T = TypeVar("T")
Operation = Callable[[Connection], object]

# Requests in one transaction: enough for a busy server, few enough that the first one does not wait long.
_LIMIT = 256

# Attempts at a transaction that conflicts with one of another server.
_TRIES = 5


class Writer:
    """The only writer of this process; the lock of the database separates it from other processes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._log = TurnLog(database)
        self._batched: Batched[Append | Operation, object] = Batched(self._write, limit=_LIMIT)

    def append(self, request: Append) -> None:
        """Durable on return. Raises the error by which this request was refused."""
        self._batched([request])

    def run(self, operation: Callable[[Connection], T]) -> T:
        """The result of the operation, once durable. When the operation raises, nothing of it is written."""
        return cast(T, self._batched([operation])[0])

    def _write(self, requests: list[Append | Operation]) -> list[object]:
        results = self._with_retries(requests)
        if any(isinstance(result, Exception) for result in results):
            raise PartialFailure(results)
        return results

    def _with_retries(self, requests: list[Append | Operation], tries: int = _TRIES) -> list[object]:
        """A result or an error for each request.

        On PostgreSQL a transaction of another server may insert the same session between our check and our commit.
        The whole batch is then checked and written again: against the new rows the request succeeds, or is refused
        with its own error. On SQLite the write lock is taken before the check, so this does not happen.
        """
        try:
            return self._write_once(requests)
        except Conflict:
            if tries == 1:
                raise
            return self._with_retries(requests, tries - 1)

    def _write_once(self, requests: list[Append | Operation]) -> list[object]:
        appends = [request for request in requests if isinstance(request, Append)]
        with self._database.write() as connection:
            errors = iter(self._log.append(connection, appends))
            return [
                next(errors) if isinstance(request, Append) else _run_isolated(connection, request)
                for request in requests
            ]


def _run_isolated(connection: Connection, operation: Operation) -> object:
    try:
        with connection.begin_nested():
            return operation(connection)
    except LocalmemError as error:
        return error
