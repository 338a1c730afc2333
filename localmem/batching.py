"""Batched: many threads' small lists become one list, so a backend sees batches although callers stay simple.

Knows nothing of what is batched. One thread at a time leads: it gathers what waits, calls once, and hands results out.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from localmem.errors import LocalmemError, PartialFailure

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(slots=True)
class _Request(Generic[In, Out]):
    items: Sequence[In]
    result: "Future[list[Out]]" = field(default_factory=Future)


class Batched(Generic[In, Out]):
    """Wraps `call` (list in, list out, same order) for use from many threads.

    Requests that arrive while a call runs form the next batch, of at most `limit` items unless one request alone is
    larger. When a batch of several requests raises, each request is run again alone, so one bad request never fails
    its neighbours.
    """

    def __init__(self, call: Callable[[list[In]], list[Out]], *, limit: int = 64) -> None:
        self._call = call
        self._limit = limit
        self._waiting: list[_Request[In, Out]] = []
        self._guard = threading.Lock()
        self._leading = threading.Lock()

    def __call__(self, items: Sequence[In]) -> list[Out]:
        """The results for `items`, or whatever `call` raised for them."""
        if not items:
            return []
        request: _Request[In, Out] = _Request(items)
        with self._guard:
            self._waiting.append(request)
        while not request.result.done():
            with self._leading:
                if not request.result.done():
                    self._run(self._take())
        return request.result.result()

    def _take(self) -> list[_Request[In, Out]]:
        with self._guard:
            count, size = 0, 0
            for request in self._waiting:
                size += len(request.items)
                if count and size > self._limit:
                    break
                count += 1
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    def _run(self, batch: list[_Request[In, Out]]) -> None:
        try:
            results = self._call([item for request in batch for item in request.items])
        except PartialFailure as failure:
            self._share(batch, failure.results)
        except Exception as error:  # noqa: BLE001  # whatever it is belongs to the caller, perhaps another thread
            self._retry(batch, error)
        else:
            self._share(batch, results)
        finally:
            self._abandon(batch)

    def _retry(self, batch: list[_Request[In, Out]], error: Exception) -> None:
        if len(batch) == 1:
            batch[0].result.set_exception(error)
            return
        for request in batch:
            self._run([request])

    def _abandon(self, batch: list[_Request[In, Out]]) -> None:
        """An interrupt of the leading thread must not leave the others waiting for ever."""
        for request in batch:
            if not request.result.done():
                request.result.set_exception(LocalmemError("the batch was interrupted; send the request again"))

    def _share(self, batch: list[_Request[In, Out]], results: Sequence[object]) -> None:
        start = 0
        for request in batch:
            part = list(results[start : start + len(request.items)])
            start += len(request.items)
            errors = [item for item in part if isinstance(item, Exception)]
            if errors:
                request.result.set_exception(PartialFailure(part) if len(part) > 1 else errors[0])
            else:
                request.result.set_result(part)  # type: ignore[arg-type]  # no errors are left among the results
