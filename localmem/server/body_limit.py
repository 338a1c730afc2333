"""Middleware that refuses a request body above a limit, before it is read where its length is declared."""

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Raises HTTPException with status 413 inside the route that reads more than `max_bytes`.

    `limits` are other limits, by path.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, limits: Mapping[str, int] | None = None) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._limits = limits or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"")
        declared, received = int(length) if length.isdigit() else 0, 0
        limit = self._limits.get(scope.get("path", ""), self._max_bytes)

        async def receive_within_limit() -> Message:
            nonlocal received
            self._check(declared, limit)
            message = await receive()
            received += len(message.get("body", b""))
            self._check(received, limit)
            return message

        await self._app(scope, receive_within_limit, send)

    def _check(self, size: int, limit: int) -> None:
        if size > limit:
            setting = "max_body_kb" if limit == self._max_bytes else "max_import_mb"
            raise HTTPException(413, f"the body has more than {limit >> 10} kB; send less, or raise server.{setting}")
