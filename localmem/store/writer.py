"""Group commit: whatever many threads want written at the same moment goes into one transaction.

One thread writes for all, so a hundred waiting appends cost one sync of the disk. A request that is refused does not
fail its neighbours: appends are checked before they are written, everything else runs inside a savepoint.
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

# Requests in one transaction: enough for a busy server, few enough that the first in line does not wait long.
_LIMIT = 256

# Times that a transaction is tried when one of another server gets in its way.
_TRIES = 5


class Writer:
    """The one writer of this process; other processes are kept apart by the database's own lock."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._log = TurnLog(database)
        self._batched: Batched[Append | Operation, object] = Batched(self._write, limit=_LIMIT)

    def append(self, request: Append) -> None:
        """Durable on return. Raises what `append` found wrong with this request."""
        self._batched([request])

    def run(self, operation: Callable[[Connection], T]) -> T:
        """The operation's result, once it is durable; when it raises, nothing of it was written."""
        return cast(T, self._batched([operation])[0])

    def _write(self, requests: list[Append | Operation]) -> list[object]:
        results = self._settled(requests)
        if any(isinstance(result, Exception) for result in results):
            raise PartialFailure(results)
        return results

    def _settled(self, requests: list[Append | Operation], tries: int = _TRIES) -> list[object]:
        """A result or an error for each request. On PostgreSQL another server may have been faster: look again."""
        try:
            return self._once(requests)
        except Conflict:
            if tries == 1:
                raise
            return self._settled(requests, tries - 1)

    def _once(self, requests: list[Append | Operation]) -> list[object]:
        appends = [request for request in requests if isinstance(request, Append)]
        with self._database.write() as connection:
            refused = iter(self._log.append(connection, appends))
            return [
                next(refused) if isinstance(request, Append) else _alone(connection, request) for request in requests
            ]


def _alone(connection: Connection, operation: Operation) -> object:
    try:
        with connection.begin_nested():
            return operation(connection)
    except LocalmemError as error:
        return error
