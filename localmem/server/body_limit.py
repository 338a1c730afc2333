"""Middleware that refuses a request body above a limit, before it is read where its length is declared."""

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Raises HTTPException with status 413 inside the route that reads more than `max_bytes`."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"")
        declared, received = int(length) if length.isdigit() else 0, 0

        async def receive_within_limit() -> Message:
            nonlocal received
            self._check(declared)
            message = await receive()
            received += len(message.get("body", b""))
            self._check(received)
            return message

        await self._app(scope, receive_within_limit, send)

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            limit = self._max_bytes >> 10
            raise HTTPException(413, f"the body has more than {limit} kB; send less, or raise server.max_body_kb")
