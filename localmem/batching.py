"""Batching: many threads' small lists become one list, and long lists become batches of similar length.

Does not depend on what is batched. In `Batched` one thread at a time leads: it gathers the waiting requests, makes one
call, distributes the results, and passes the lead to the thread that has waited longest, so that every thread with a
result returns at once.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from localmem.errors import LocalmemError, PartialFailure

In = TypeVar("In")
Out = TypeVar("Out")


def results_or_raise(results: Sequence[Out | Exception]) -> list[Out]:
    """The results unchanged if none is an error. Raises PartialFailure, or the error itself if all failed alike."""
    errors = [result for result in results if isinstance(result, Exception)]
    successes = [result for result in results if not isinstance(result, Exception)]
    if not errors:
        return successes
    if not successes and len({(type(error), str(error)) for error in errors}) == 1:
        raise errors[0]
    raise PartialFailure(results)


def result_or_error(call: Callable[[In], Out], item: In) -> Out | LocalmemError:
    """What `call` returns for the item, or the error that it raises."""
    try:
        return call(item)
    except LocalmemError as error:
        return error


def map_by_length(
    call: Callable[[Sequence[In]], Sequence[Out]], items: Sequence[In], length: Callable[[In], int], size: int
) -> list[Out]:
    """The results of `call` for each item, in order. Batches of `size` hold similar lengths, for little padding."""
    order = sorted(range(len(items)), key=lambda index: length(items[index]))
    results: dict[int, Out] = {}
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        results.update(zip(batch, call([items[index] for index in batch]), strict=True))
    return [results[index] for index in range(len(items))]


@dataclass(eq=False, slots=True)
class _Request(Generic[In, Out]):
    """One caller's items and, later, their results. The gate opens when the caller must lead or has its results."""

    items: Sequence[In]
    gate: threading.Event = field(default_factory=threading.Event)
    answered: bool = False
    results: list[Out] = field(default_factory=list)
    error: Exception | None = None

    def answer(self, results: list[Out], error: Exception | None = None) -> None:
        self.results, self.error, self.answered = results, error, True
        self.gate.set()


class Batched(Generic[In, Out]):
    """Wraps `call` (list in, list out, same order) for use from many threads.

    Requests that arrive while a call runs form the next batch, of at most `limit` items unless one request alone is
    larger. When a batch of several requests raises, each request is run again alone, so one bad request never fails
    its neighbours.
    """

    def __init__(self, call: Callable[[list[In]], list[Out]], *, limit: int = 64) -> None:
        self._call = call
        self.limit = limit
        self._waiting: list[_Request[In, Out]] = []
        self._guard = threading.Lock()
        self._leader: _Request[In, Out] | None = None

    def __call__(self, items: Sequence[In]) -> list[Out]:
        """The results for `items`, or whatever `call` raised for them."""
        if not items:
            return []
        request: _Request[In, Out] = _Request(items)
        with self._guard:
            self._waiting.append(request)
            if self._leader is None:
                self._promote()
        try:
            request.gate.wait()
            if not request.answered:
                self._run(self._take())
        finally:
            self._leave(request)
        if request.error is not None:
            raise request.error
        return request.results

    def _promote(self) -> None:
        """Makes the request that has waited longest the next leader, if there is one; call it under the guard."""
        self._leader = self._waiting[0] if self._waiting else None
        if self._leader is not None:
            self._leader.gate.set()

    def _leave(self, request: _Request[In, Out]) -> None:
        """Passes on the lead, and withdraws the request of an interrupted caller, so that no thread waits for it."""
        if request.answered and self._leader is not request:
            return
        with self._guard:
            if request in self._waiting:
                self._waiting.remove(request)
            if self._leader is request:
                self._promote()

    def _take(self) -> list[_Request[In, Out]]:
        with self._guard:
            count, size = 0, 0
            for request in self._waiting:
                size += len(request.items)
                if count and size > self.limit:
                    break
                count += 1
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    def _run(self, batch: list[_Request[In, Out]]) -> None:
        try:
            results = self._call([item for request in batch for item in request.items])
        except PartialFailure as failure:
            self._share(batch, failure.results)
        except Exception as error:  # noqa: BLE001  # it is raised in the caller, perhaps another thread
            if len(batch) == 1:
                batch[0].answer([], error)
            for request in batch if len(batch) > 1 else ():
                self._run([request])
        else:
            self._share(batch, results)
        finally:
            self._abandon(batch)

    def _abandon(self, batch: list[_Request[In, Out]]) -> None:
        """Fails unanswered requests: an interrupt of the leading thread must not leave the others waiting for ever."""
        for request in batch:
            if not request.answered:
                request.answer([], LocalmemError("the batch was interrupted; send the request again"))

    def _share(self, batch: list[_Request[In, Out]], results: Sequence[object]) -> None:
        start = 0
        for request in batch:
            part = list(results[start : start + len(request.items)])
            start += len(request.items)
            errors = [item for item in part if isinstance(item, Exception)]
            if errors:
                request.answer([], PartialFailure(part) if len(part) > 1 else errors[0])
            else:
                request.answer(part)  # type: ignore[arg-type]  # no errors are left among the results
