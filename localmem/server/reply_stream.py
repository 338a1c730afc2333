"""One reply in progress: a worker thread runs the agent's generator, the event loop takes the pieces from it.

Where the backbone's words come through the event loop, the loop runs the generator itself from one Pause to the next,
and a thread only what is before the first words and after the last. No HTTP and no store. Stopping a stream closes the
generator between two pieces, so the backbone stops working and the words so far are logged.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, wait
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial

from localmem.llm.base import CallPiece, Feed, Pause
from localmem.llm.remote.line_feed import LoopReader
from localmem.server.errors import ApiError
from localmem.server.schemas import MemoryMode
from localmem.types import Completion, Reply

log = logging.getLogger(__name__)

Pieces = Generator[str, None, Reply]


class Stopped(ApiError):
    """The reply was stopped before its end: by its client or the shutdown of the server, or `for_good`.

    That is by the end of its session or an erasure. Clients repeat a 503 by themselves, which would store what was just
    erased, and a 410 they do not.
    """

    def __init__(self, *, for_good: bool = False) -> None:
        status, why = (410, ": its session was ended, or memories were erased") if for_good else (503, "")
        saved = "send the message again for another" if for_good else "the words so far are saved"
        super().__init__(status, f"the reply was stopped{why}; {saved}", code="broken_off")


class ReplyStream:
    """Create it on the event loop. Call `run` on a worker thread, `next` on the loop, the rest from any thread.

    With `reader` the loop reads what the backbone streams, and `resume` runs the last steps on a thread.
    """

    def __init__(
        self, reader: LoopReader | None = None, resume: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        self.session = ""  # empty until the user's turn is durable, and for good when nothing is logged
        self.mode: MemoryMode = "write"  # what memory does with the request, as soon as that is decided
        self.alternatives: tuple[Completion, ...] = ()  # further replies to the same request, complete at its end
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # of the request, for what threads do of it
        self._events: asyncio.Queue[str | Reply | Exception] = asyncio.Queue()
        self._next: str | Reply | Exception | None = None  # the event after the words that were taken together
        self._stop = threading.Event()
        self._finished: Future[None] = Future()
        self._thread = threading.get_ident()
        self._reader = reader if resume else None
        self._resume = resume
        self._pieces: Pieces | None = None
        self._feed: Feed | None = None  # what a paused stream waits for

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    def stop(self, *, for_good: bool = False) -> None:
        """End before the next piece. The words so far are kept; a stream that still waits for a thread never starts.

        Its client hears of it at once: what still has to be done, such as saving the words, may take longer.
        """
        if not self.is_stopped and not self._finished.done():
            self._put(Stopped(for_good=for_good))
        self._stop.set()
        if self._feed:
            self._feed.wake()

    def raise_if_stopped(self) -> None:
        """Raises Stopped after `stop`: for a worker, before it begins what takes long."""
        if self.is_stopped:
            raise Stopped

    def wait(self, seconds: float) -> bool:
        """Wait for the reply to end, its last turn logged. False when it takes longer."""
        return bool(wait([self._finished], seconds).done)

    def run(self, start: Callable[["ReplyStream"], Pieces]) -> Future[None]:
        """Produce the reply on this thread, to its end or as far as the loop can go on; the future is done at its end.

        Errors are passed to the loop.
        """
        self._context.copy().run(self._begin, start)
        return self._finished

    def _begin(self, start: Callable[["ReplyStream"], Pieces]) -> None:
        with self._reader.reading(self._loop) if self._reader else nullcontext():
            self._advance(start)

    def _advance(self, start: Callable[["ReplyStream"], Pieces] | None = None) -> None:
        """Go on to the next pause or to the end, on whichever thread calls it."""
        try:
            reply = self._drive(start)
            if reply is None:
                return
            self._put(reply)
        except Stopped:
            pass  # `stop` has told the client
        except Exception as error:  # noqa: BLE001  # whatever it is belongs to the client that made the request
            if self.is_stopped:
                log.warning("cannot save a stopped reply: %s", error)
            self._put(error)
        self._finished.set_result(None)

    async def next(self) -> str | Reply:
        """The words since the last call, or a CallPiece, as soon as there are any; at the end the Reply.

        Raises the worker's error.
        """
        event = await self._events.get() if self._next is None else self._next
        self._next = None
        if isinstance(event, Exception):
            raise event
        if isinstance(event, Reply | CallPiece):
            return event
        words = [event]
        while not self._events.empty() and self._next is None:  # a loop that fell behind sends all words as one piece
            event = self._events.get_nowait()
            if isinstance(event, str) and not isinstance(event, CallPiece):
                words.append(event)
            else:
                self._next = event
        return "".join(words)

    def _drive(self, start: Callable[["ReplyStream"], Pieces] | None) -> Reply | None:
        """The reply at its end, None at a pause."""
        if start:
            self.raise_if_stopped()
        pieces = self._pieces = start(self) if start else self._pieces
        while pieces and not self.is_stopped:
            try:
                piece = next(pieces)
            except StopIteration as end:
                reply: Reply = end.value
                return reply
            if not isinstance(piece, Pause):
                self._put(piece)
            elif self._resume:
                self._feed = piece.feed
                piece.feed.when_ready(self._go_on)
                if self._stop.is_set():  # it may have come just before
                    piece.feed.wake()
                return None
        if pieces:
            pieces.close()
        raise Stopped

    def _go_on(self) -> None:
        """On the loop: what follows the last words, or a stop, may wait for disks and servers."""
        feed, self._feed = self._feed, None
        if self._resume and (self.is_stopped or feed is None or feed.has_ended):
            self._resume(partial(self._context.copy().run, self._advance))
        else:
            self._advance()

    def _put(self, event: str | Reply | Exception) -> None:
        if threading.get_ident() == self._thread:
            self._events.put_nowait(event)
            return
        try:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        except RuntimeError:  # the loop is closed, so nobody waits for the event
            log.warning("the server stopped during a reply")
