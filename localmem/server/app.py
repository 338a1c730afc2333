"""The app: routes, errors and counting around one runtime, and the threads that live as long as it is served.

Knows no sockets; `run` does. The clock is injected.
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
from localmem.server.metrics import Counted
from localmem.server.routes import completions, health, memories, openai
from localmem.server.session_manager import Clock


def utc_now() -> datetime:
    """The time of day: the server is where it enters."""
    return datetime.now(UTC)


def create_app(runtime: Runtime, *, now: Clock = utc_now) -> FastAPI:
    """The app over a runtime that the caller opens and closes."""
    services = Services.of(runtime, now)
    # The documentation pages of the framework would load scripts from the network.
    app = FastAPI(title="localmem", docs_url=None, redoc_url=None, lifespan=_lifespan)
    app.state.services = services
    for part in (completions, openai, memories, health):
        app.include_router(part.router)
    errors.install(app)
    app.add_middleware(Counted, metrics=services.metrics)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    idle = timedelta(minutes=services.settings.server.idle_minutes)
    watch = IdleWatch(services.runtime, services.desk, services.now, idle=idle)
    services.runtime.remember_in_background()
    watch.start()
    try:
        yield
    finally:
        services.desk.stop_all()
        await asyncio.to_thread(watch.stop)
        await asyncio.to_thread(services.pool.shutdown, cancel_futures=True)
