"""One reply in progress: a worker thread drives the agent's generator, the event loop takes the pieces from it.

Knows no HTTP and no store. Stopping a talk closes the generator between two pieces, so the backbone stops working and
what was said until then is kept.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from contextlib import closing

from localmem.server.errors import Problem
from localmem.types import Reply

log = logging.getLogger(__name__)

Pieces = Generator[str, None, Reply]


class Stopped(Problem):
    """The talk was stopped before its reply was whole: by its client, by the end of its session, or of the server."""

    def __init__(self) -> None:
        super().__init__(503, "the reply was broken off; what was said of it is kept", code="broken_off")


class Talk:
    """Made on the event loop; `run` belongs to a worker thread, `next` to the loop, the rest to anyone."""

    def __init__(self) -> None:
        self.session = ""  # known once the user's turn is durable
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[str | Reply | Exception] = asyncio.Queue()
        self._stop = threading.Event()
        self._over = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether it ends, or has ended, before its reply is whole."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End it before the next piece. What was given is kept; a talk that waits for a thread does not begin."""
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Whether the worker is done, its last turn written, within this time."""
        return self._over.wait(seconds)

    def run(self, begin: Callable[["Talk"], Pieces]) -> None:
        """The whole reply, on this thread. Whatever it raises goes to the loop."""
        try:
            self._put(self._drive(begin))
        except Exception as error:  # noqa: BLE001  # whatever it is belongs to the client that asked
            if self.stopped and not isinstance(error, Stopped):
                log.warning("a reply that was broken off could not be kept: %s", error)
            self._put(error)
        finally:
            self._over.set()

    async def next(self) -> str | Reply:
        """The words since the last call, as soon as there are any; at the end the Reply. Raises what the reply did."""
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event
        if isinstance(event, Reply):
            return event
        words = [event]
        while not self._events.empty():  # a loop that fell behind sends what it has as one piece
            event = self._events.get_nowait()
            if not isinstance(event, str):
                self._events.put_nowait(event)  # the last event of all, so it is the next one again
                break
            words.append(event)
        return "".join(words)

    def _drive(self, begin: Callable[["Talk"], Pieces]) -> Reply:
        if self.stopped:
            raise Stopped
        with closing(begin(self)) as pieces:
            while not self.stopped:
                try:
                    self._put(next(pieces))
                except StopIteration as end:
                    reply: Reply = end.value
                    return reply
        raise Stopped

    def _put(self, event: str | Reply | Exception) -> None:
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        except RuntimeError:
            log.warning("the server stopped while a reply was given")  # the loop is closed: nobody waits for it
