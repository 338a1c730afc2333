"""The app: routes, error responses and metrics for one runtime, and the threads that run while it is served.

Opens no socket; `listen` does. The clock is injected.
"""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from localmem.errors import LocalmemError
from localmem.runtime import Runtime
from localmem.server import errors
from localmem.server.audit_log import AuditLog, check_file
from localmem.server.body_limit import BodyLimit
from localmem.server.chat_service import SESSION_HEADER, TRIMMED_HEADER
from localmem.server.dependencies import Clock, Services, check_query
from localmem.server.documents import ErrorDocument
from localmem.server.mcp_http import McpEndpoint
from localmem.server.metrics import RequestCounter, RequestTracer
from localmem.server.page.install import install as install_page
from localmem.server.routes import completions, health, mem0, memories, messages, ollama, openai, responses, sessions
from localmem.server.routes.sessions import IMPORT_PATHS
from localmem.server.session_manager import SessionManager
from localmem.store import SessionInfo
from localmem.types import Session

if TYPE_CHECKING:
    from localmem.runtime.tracing import Tracing

log = logging.getLogger(__name__)


def utc_now() -> datetime:
    """The present. Other modules take times as arguments."""
    return datetime.now(UTC)


def create_app(
    runtime: Runtime, *, now: Clock = utc_now, token: str | None = None, tracing: "Tracing | None" = None
) -> FastAPI:
    """The app of a runtime that the caller opens and closes; `token` is the key of this start, or it gets its own.

    `tracing` is what wraps the parts of the runtime, if anything does.
    """
    services = Services.create(runtime, now, token or token_urlsafe(32))
    # The framework's documentation pages load scripts from the network, so they are off.
    app = FastAPI(
        title="localmem",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        dependencies=[Depends(check_query)],
        responses={"4XX": {"model": ErrorDocument}, "5XX": {"model": ErrorDocument}},
    )
    app.state.services = services
    for module in (completions, responses, messages, ollama, openai, memories, sessions, mem0, health):
        app.include_router(module.router)
    install_page(app, services)
    app.state.mcp = McpEndpoint(services)
    app.router.routes.append(Route("/mcp", app.state.mcp))
    errors.install(app)
    server = services.settings.server
    limits = dict.fromkeys(IMPORT_PATHS, server.max_import_mb << 20)
    app.add_middleware(BodyLimit, max_bytes=server.max_body_kb << 10, limits=limits, slow_seconds=server.slow_seconds)
    if server.audit_log:
        check_file(server.audit_log)
        app.add_middleware(AuditLog, file=server.audit_log, now=now)
    app.add_middleware(RequestCounter, metrics=services.metrics, logs=server.access_log)
    if tracing:
        app.add_middleware(RequestTracer, tracing=tracing)
    if server.origins:
        headers = [SESSION_HEADER, TRIMMED_HEADER]
        app.add_middleware(
            CORSMiddleware,
            allow_origins=server.origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=headers,
        )
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    idle = timedelta(minutes=services.settings.server.idle_minutes)
    watch = IdleWatch(services.runtime, services.sessions, services.now, idle=idle)
    services.runtime.remember_in_background()
    watch.start()
    listener = services.runtime.store.lookups.watch(services.runtime.refresh)
    try:
        yield
    finally:
        services.sessions.stop_all()
        await app.state.mcp.close()
        await asyncio.to_thread(watch.stop)
        if listener:
            await asyncio.to_thread(listener.close)
        await asyncio.to_thread(services.pool.shutdown)
        await services.reader.close()


class IdleWatch:
    """A thread that closes idle sessions, those of earlier runs of the server included.

    A session is idle when its last turn is old enough by the time of day, or when it got no new turn for as long by a
    monotonic clock: a time of day that is set back must not keep a session open.
    """

    def __init__(
        self,
        runtime: Runtime,
        sessions: SessionManager,
        now: Clock,
        *,
        idle: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._now = now
        self._idle = idle
        self._monotonic = monotonic
        self._last_change: dict[tuple[str, str], tuple[int, float]] = {}  # (user, session) -> turns, time
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="idle-watch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._stopping.set()
        self._thread.join()

    def check(self) -> list[str]:
        """Close the sessions that are idle now and return their ids.

        The store says what is idle, so that a check loads no agent of a user who is away.
        """
        closed: list[str] = []
        open_keys: set[tuple[str, str]] = set()
        for user in self._runtime.store.lookups.with_open_sessions():
            open_infos = self._runtime.store.sessions(user, "open")
            open_keys.update((user, info.id) for info in open_infos)
            idle = {info.id: info.turns for info in open_infos if self._is_idle(user, info)}
            if idle:
                closed += self._sessions.end_idle(user, partial(_is_unchanged, idle))
        self._last_change = {key: change for key, change in self._last_change.items() if key in open_keys}
        return closed

    def _is_idle(self, user: str, info: SessionInfo) -> bool:
        if not info.turns:
            return False
        reading = self._monotonic()
        turns, since = self._last_change.get((user, info.id), (0, reading))
        if turns != info.turns:
            since = reading
        self._last_change[user, info.id] = (info.turns, since)
        return max(self._now() - info.ended, timedelta(seconds=reading - since)) >= self._idle

    def _watch(self) -> None:
        pause = min(max(self._idle.total_seconds() / 10, 0.5), 30.0)
        while not self._stopping.wait(pause):
            try:
                self.check()
            except LocalmemError as error:
                log.warning("cannot close idle sessions: %s", error)  # the next check tries again


def _is_unchanged(idle: Mapping[str, int], session: Session) -> bool:
    """Whether the session is one of the idle ones (id -> number of turns) and got no turn since the check."""
    return len(session.turns) <= idle.get(session.id, -1)
