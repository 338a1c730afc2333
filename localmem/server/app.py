"""The app: routes, error responses and metrics for one runtime, and the threads that run while it is served.

Opens no socket; `listen` does. The clock is injected.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from fastapi import FastAPI

from localmem.runtime import Runtime
from localmem.server import errors
from localmem.server.dependencies import Services
from localmem.server.idle import IdleWatch
from localmem.server.metrics import RequestCounter
from localmem.server.routes import completions, health, memories, openai
from localmem.server.session_manager import Clock


def utc_now() -> datetime:
    """The present. Other modules take times as arguments."""
    return datetime.now(UTC)


def create_app(runtime: Runtime, *, now: Clock = utc_now) -> FastAPI:
    """The app of a runtime that the caller opens and closes."""
    services = Services.create(runtime, now)
    # The framework's documentation pages load scripts from the network, so they are off.
    app = FastAPI(title="localmem", docs_url=None, redoc_url=None, lifespan=_lifespan)
    app.state.services = services
    for module in (completions, openai, memories, health):
        app.include_router(module.router)
    errors.install(app)
    app.add_middleware(RequestCounter, metrics=services.metrics)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    idle = timedelta(minutes=services.settings.server.idle_minutes)
    watch = IdleWatch(services.runtime, services.sessions, services.now, idle=idle)
    services.runtime.remember_in_background()
    watch.start()
    try:
        yield
    finally:
        services.sessions.stop_all()
        await asyncio.to_thread(watch.stop)
        await asyncio.to_thread(services.pool.shutdown, cancel_futures=True)
