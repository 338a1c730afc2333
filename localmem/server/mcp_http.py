"""`/mcp`: the protocol over streamable HTTP, without sessions, so that a client that never initialises is served too.

The user and their time zone are found as for any other request: the user by the API key, or on this machine without
keys. The SDK loads at the first request; without it the answer says how to install it.
"""

import asyncio
from contextvars import ContextVar
from datetime import tzinfo
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fastapi.responses import JSONResponse
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from localmem.server.dependencies import Services, read_request_zone
from localmem.server.errors import ApiError
from localmem.times.zones import in_zone

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_zone: ContextVar[tzinfo | None] = ContextVar("mcp_zone")


class McpEndpoint:
    """The ASGI application behind `/mcp`. `close` it at the end of the server."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._opening = asyncio.Lock()
        self._closing = asyncio.Event()
        self._manager: StreamableHTTPSessionManager | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            user, is_admin = self._find_user(Request(scope))
            zone = read_request_zone(Request(scope), self._services.settings)
        except ApiError as error:
            await JSONResponse(error.body(), error.status, dict(error.headers or {}))(scope, receive, send)
            return
        from localmem.server.mcp_tools import current_user, may_change

        messages = [await receive()]  # the whole body: the SDK calls a client that leaves before its end an error
        if messages[0]["type"] == "http.disconnect":
            return

        async def receive_again() -> Message:
            return messages.pop() if messages else await receive()

        manager = await self._start()
        token, change_token, zone_token = current_user.set(user), may_change.set(is_admin), _zone.set(zone)
        try:
            await manager.handle_request(scope, receive_again, send)
        finally:
            current_user.reset(token)
            may_change.reset(change_token)
            _zone.reset(zone_token)

    def _find_user(self, request: Request) -> tuple[str, bool]:
        """The user, and whether the key may change memory."""
        if find_spec("mcp") is None:
            raise ApiError(501, "MCP is not installed on this server; run `pip install 'localmem[mcp]'`")
        auth = self._services.auth
        return auth.user(request), "admin" in auth.identify(request).scopes

    async def close(self) -> None:
        """End what was opened."""
        self._closing.set()
        if self._serving:
            await self._serving

    async def _start(self) -> "StreamableHTTPSessionManager":
        async with self._opening:
            if self._manager is None:
                self._manager = await asyncio.to_thread(self._new_manager)
                running = asyncio.Event()
                self._serving = asyncio.create_task(self._serve(self._manager, running))
                await running.wait()
            return self._manager

    async def _serve(self, manager: "StreamableHTTPSessionManager", running: asyncio.Event) -> None:
        async with manager.run():
            running.set()
            await self._closing.wait()

    def _new_manager(self) -> "StreamableHTTPSessionManager":
        from mcp.server.transport_security import TransportSecuritySettings

        from localmem.server.mcp_tools import new_server

        services, zone = self._services, _zone.get
        server = new_server(services.runtime, services.sessions, lambda: in_zone(services.now(), zone()), zone)
        # Host and Origin were checked with the key.
        trusting = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        server.streamable_http_app(json_response=True, stateless_http=True, transport_security=trusting)
        return server.session_manager
