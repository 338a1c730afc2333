"""One reply in progress: a worker thread runs the agent's generator, the event loop takes the pieces from it.

No HTTP and no store. Stopping a stream closes the generator between two pieces, so the backbone stops working and the
words so far are logged.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from contextlib import closing

from localmem.server.errors import ApiError
from localmem.server.schemas import MemoryMode
from localmem.types import Completion, Reply

log = logging.getLogger(__name__)

Pieces = Generator[str, None, Reply]


class Stopped(ApiError):
    """The reply was stopped before its end: by its client, the end of its session, or the shutdown of the server."""

    def __init__(self) -> None:
        super().__init__(503, "the reply was stopped; the words so far are saved", code="broken_off")


class ReplyStream:
    """Create it on the event loop. Call `run` on a worker thread, `next` on the loop, the rest from any thread."""

    def __init__(self) -> None:
        self.session = ""  # empty until the user's turn is durable, and for good when nothing is logged
        self.mode: MemoryMode = "write"  # what memory does with the request, as soon as that is decided
        self.alternatives: tuple[Completion, ...] = ()  # further replies to the same request, complete at its end
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[str | Reply | Exception] = asyncio.Queue()
        self._stop = threading.Event()
        self._finished = threading.Event()

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End before the next piece. The words so far are kept; a stream that still waits for a thread never starts."""
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Wait for the worker to finish, its last turn logged. False when it takes longer."""
        return self._finished.wait(seconds)

    def run(self, start: Callable[["ReplyStream"], Pieces]) -> None:
        """Produce the whole reply on this thread. Errors are passed to the loop."""
        try:
            self._put(self._drive(start))
        except Exception as error:  # noqa: BLE001  # whatever it is belongs to the client that made the request
            if self.is_stopped and not isinstance(error, Stopped):
                log.warning("cannot save a stopped reply: %s", error)
            self._put(error)
        finally:
            self._finished.set()

    async def next(self) -> str | Reply:
        """The words since the last call, as soon as there are any; at the end the Reply. Raises the worker's error."""
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event
        if isinstance(event, Reply):
            return event
        words = [event]
        while not self._events.empty():  # a loop that fell behind sends what has queued up as one piece
            event = self._events.get_nowait()
            if not isinstance(event, str):
                self._events.put_nowait(event)  # it is the last event of all, so it is the next one again
                break
            words.append(event)
        return "".join(words)

    def _drive(self, start: Callable[["ReplyStream"], Pieces]) -> Reply:
        if self.is_stopped:
            raise Stopped
        with closing(start(self)) as pieces:
            while not self.is_stopped:
                try:
                    self._put(next(pieces))
                except StopIteration as end:
                    reply: Reply = end.value
                    return reply
        raise Stopped

    def _put(self, event: str | Reply | Exception) -> None:
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        except RuntimeError:  # the loop is closed, so nobody waits for the event
            log.warning("the server stopped during a reply")
