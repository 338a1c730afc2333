"""Middleware that reads a request's body before the route does, and refuses one that is too large, slow or deep.

So is one with what Python reads and JSON has not, which no response could repeat. A body is refused inside the route
that asks for it, so that the error has the form of the route's protocol. Brackets are counted outside of strings,
without parsing: a parser may run out of stack on what this lets through no further.
"""

import asyncio
import re
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_DEPTH = 100  # levels of lists and objects in each other; real requests, JSON schemas of tools included, have few
_MIN_RATE = 16 << 10  # bytes a second that a slow client must send
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_TOO_DEEP = re.compile(rb"[\[{]{%d}" % (MAX_DEPTH + 1))
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPES = re.compile(rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(?P<half>u[dD][89a-fA-F])|.)", re.DOTALL)
_NOT_FINITE = re.compile(rb"\b(?:NaN|Infinity)\b")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class BodyLimit:
    """Raises HTTPException in the route that reads the body: 413 above `max_bytes`, 415 coded, 408 slow, 400 too deep.

    `limits` are other limits, by path. A client may take `slow_seconds`, and as long as its bytes need at 16 kB/s.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, limits: Mapping[str, int] | None = None, slow_seconds: float = 30.0
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._limits = limits or {}
        self._slow_seconds = slow_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_read = False

        async def receive_checked() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return await self._read(scope, receive)

        await self._app(scope, receive_checked, send)

    async def _read(self, scope: Scope, receive: Receive) -> Message:
        """The whole body as one message, or the client's leaving."""
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        coding = headers.get(b"content-encoding", b"identity").decode("latin-1")
        if coding.strip().lower() not in ("", "identity"):
            raise HTTPException(415, f"the body is encoded as {coding!r}; send it without content-encoding")
        limit = self._limits.get(scope.get("path", ""), self._max_bytes)
        self._check_size(int(length) if length.isdigit() else 0, limit)
        body, has_more = bytearray(), True
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._slow_seconds) as timeout:
                while has_more:
                    message = await receive()
                    if message["type"] != "http.request":
                        return message
                    body += message.get("body", b"")
                    self._check_size(len(body), limit)
                    timeout.reschedule(started + self._slow_seconds + len(body) / _MIN_RATE)
                    has_more = message.get("more_body", False)
        except TimeoutError as error:
            raise HTTPException(408, f"the body came too slowly ({len(body)} bytes); send it faster") from error
        if problem := _find_problem(body):
            raise HTTPException(400, problem)
        return {"type": "http.request", "body": bytes(body), "more_body": False}

    def _check_size(self, size: int, limit: int) -> None:
        if size > limit:
            setting = "max_body_kb" if limit == self._max_bytes else "max_import_mb"
            raise HTTPException(413, f"the body has more than {limit >> 10} kB; send less, or raise server.{setting}")


def _find_problem(body: bytearray) -> str:
    """What Python's parser would let through, or run out of stack on; empty for none."""
    if b"\0" in body:  # JSON in another encoding, in which brackets and quotes cannot be told by their bytes
        return "the body is not UTF-8; send it as UTF-8"
    if is_too_deep(body):
        return f"the body has more than {MAX_DEPTH} levels of lists and objects; flatten it"
    if _SURROGATE.search(body) and any(escape["half"] for escape in _ESCAPES.finditer(body)):
        return "the body has an unpaired surrogate, half of a character; send whole characters"
    if _NOT_FINITE.search(body) and _NOT_FINITE.search(_STRING.sub(b"", body)):
        return "the body has NaN or Infinity, which JSON has not; send numbers"
    return ""


def is_too_deep(body: bytes | bytearray) -> bool:
    """Whether lists and objects in a JSON text are nested too deeply: never up to MAX_DEPTH, always from twice that."""
    brackets, size = _STRING.sub(b"", body).translate(None, _NO_BRACKETS), -1
    while len(brackets) != size:  # each pass takes the innermost lists and objects away
        if _TOO_DEEP.search(brackets):
            return True
        size = len(brackets)
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return False
