"""What the routes share, and how a route receives it. Created once per server with the app; nothing is global."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import Annotated

from fastapi import Depends, Request

from localmem.config import Settings
from localmem.runtime import Runtime
from localmem.server.auth import Authenticator
from localmem.server.metrics import Metrics
from localmem.server.session_manager import Clock, SessionManager


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one server.

    `local_token` is the key of this start for commands on this machine. `warm` is set once the backbone is loaded;
    replies run on the threads of `pool`; `started` is in unix seconds.
    """

    runtime: Runtime
    settings: Settings
    now: Clock
    sessions: SessionManager
    auth: Authenticator
    metrics: Metrics
    pool: ThreadPoolExecutor
    local_token: str
    started: int
    warm: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def create(cls, runtime: Runtime, now: Clock) -> "Services":
        """The services of a runtime, by its settings."""
        settings, sessions = runtime.settings, SessionManager(runtime, now)
        pool = ThreadPoolExecutor(settings.server.threads, thread_name_prefix="reply")
        token = token_urlsafe(32)
        auth, metrics = Authenticator(settings, token), Metrics(runtime, sessions)
        return cls(runtime, settings, now, sessions, auth, metrics, pool, token, int(now().timestamp()))


async def get_services(request: Request) -> Services:
    """The services of the app that received the request."""
    services: Services = request.app.state.services
    return services


SharedServices = Annotated[Services, Depends(get_services)]


async def get_user(request: Request, services: SharedServices) -> str:
    """The user whose memory the request is about. Raises ApiError without a valid key."""
    return services.auth.user(request)


User = Annotated[str, Depends(get_user)]
