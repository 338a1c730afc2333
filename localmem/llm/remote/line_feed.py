"""Streams that an event loop reads, so that no thread waits for each of them.

A generator of words still runs from beginning to end in plain code: where no line has come yet it yields a Pause, and
whoever drives it may leave it there until the loop has more. A driver that goes on at once waits, as for any generator.
Knows no engine and no protocol.
"""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar

import httpx

from localmem.llm.base import Pause

# What ends the events of OpenAI's protocol; a server may keep the connection open for a moment longer.
_LAST = "data: [DONE]"

NewClient = Callable[[], httpx.AsyncClient]
Request = Callable[[httpx.AsyncClient], AbstractAsyncContextManager[httpx.Response]]


class LineSplitter:
    """The lines of a stream of bytes. A line feed alone ends one: JSON may hold any other separator of lines."""

    def __init__(self) -> None:
        self._begun = b""

    def add(self, piece: bytes) -> list[str]:
        """The lines that this piece, which ends where the network cut it, completes."""
        *lines, self._begun = (self._begun + piece).split(b"\n")
        return [line.decode(errors="replace") for line in lines]

    def end(self) -> str:
        """The last line, which no line feed ends."""
        return self._begun.decode(errors="replace")


def split_lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream, as they come."""
    splitter = LineSplitter()
    for piece in pieces:
        yield from splitter.add(piece)
    yield splitter.end()


class LoopReader:
    """The connections by which the streams of one event loop are read."""

    def __init__(self) -> None:
        # A client for each stream: httpx looks at all connections of a client at the beginning and end of each request.
        self._idle: dict[Hashable, list[httpx.AsyncClient]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def reading(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Streams that this thread begins inside the block are read on the loop."""
        self._loop = loop
        token = _READER.set(self)
        try:
            yield
        finally:
            _READER.reset(token)

    def read_lines(self, server: Hashable, new_client: NewClient, request: Request) -> "LineFeed":
        """The lines of the answer to a request; `new_client` makes a client where none of the server is idle."""
        if self._loop is None:
            raise RuntimeError("a stream was begun outside of `reading`")

        @asynccontextmanager
        async def send() -> AsyncIterator[httpx.Response]:
            idle = self._idle.setdefault(server, [])
            client = idle.pop() if idle else new_client()
            async with request(client) as response:
                yield response
            idle.append(client)

        return LineFeed(self._loop, send)

    async def close(self) -> None:
        """Close the connections; on the loop, when no stream is left."""
        for clients in self._idle.values():
            for client in clients:
                await client.aclose()


_READER: ContextVar[LoopReader | None] = ContextVar("loop_reader", default=None)


def current_reader() -> LoopReader | None:
    """The reader for streams that this thread begins; None where it is to read them itself."""
    return _READER.get()


class LineFeed:
    """The lines of one answer: the loop adds them, one thread at a time takes them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, request: Callable[[], AbstractAsyncContextManager[httpx.Response]]
    ) -> None:
        self._loop = loop
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._response: httpx.Response | None = None
        self._error: BaseException | None = None
        self._callback: Callable[[], None] | None = None
        self._is_scheduled = False
        self._thread = 0  # of the loop, once that has begun to read
        self.has_ended = False  # nothing else will be added; what follows may be work that takes long
        self._task = asyncio.run_coroutine_threadsafe(self._read(request), loop)

    def response(self) -> httpx.Response:
        """The response as soon as its head is there; with its body where it is an error. Raises httpx's errors."""
        with self._changed:
            self._changed.wait_for(lambda: self._response or self.has_ended)
        if self._response is None:
            raise self._error or httpx.ReadError("the request was cancelled")
        return self._response

    def __iter__(self) -> Iterator[str]:
        """The lines, and a Pause wherever there is none yet. Raises httpx's errors."""
        while True:
            is_complete = self.has_ended  # before the lines are looked at: no line comes after it
            if self._lines:
                yield self._lines.popleft()
            elif is_complete:
                break
            else:
                yield Pause(self)
                with self._changed:
                    self._changed.wait_for(lambda: self._lines or self.has_ended)
        if self._error:
            raise self._error

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call it on the loop as soon as there is more, or the end, or `wake` is called; once."""
        if threading.get_ident() == self._thread:
            self._watch(callback)
        else:
            self._loop.call_soon_threadsafe(self._watch, callback)

    def wake(self) -> None:
        """Call what waits for more, although there may be none. For any thread."""
        self._loop.call_soon_threadsafe(self._call)

    def close(self) -> None:
        """Break the request off, so that the server stops. One that has ended keeps its connection for the next."""
        if not self.has_ended:
            self._task.cancel()

    async def _read(self, request: Callable[[], AbstractAsyncContextManager[httpx.Response]]) -> None:
        self._thread = threading.get_ident()
        try:
            async with request() as response:
                if response.is_error:
                    await response.aread()
                self._response = response
                self._tell()
                if not response.is_error:
                    await self._split(response.aiter_bytes())
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise
        finally:
            self.has_ended = True
            self._tell()

    async def _split(self, pieces: AsyncIterator[bytes]) -> None:
        """Add the lines of an answer."""
        splitter = LineSplitter()
        async for piece in pieces:
            lines = splitter.add(piece)
            self._lines += lines
            self.has_ended = self.has_ended or any(line.startswith(_LAST) for line in lines)
            self._tell()
        self._lines.append(splitter.end())

    def _tell(self) -> None:
        with self._changed:
            self._changed.notify_all()
        if self._callback and not self._is_scheduled:  # after all lines that came together
            self._is_scheduled = True
            self._loop.call_soon(self._call)

    def _watch(self, callback: Callable[[], None]) -> None:
        self._callback = callback
        if self._lines or self.has_ended:
            self._call()

    def _call(self) -> None:
        self._is_scheduled = False
        callback, self._callback = self._callback, None
        if callback:
            callback()
