"""What the routes share, and how a route receives it. Created once per server with the app; nothing is global."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from secrets import token_urlsafe
from typing import Annotated

from fastapi import Depends, Request

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.runtime import Runtime
from localmem.server.auth import Authenticator
from localmem.server.errors import ApiError
from localmem.server.metrics import Metrics
from localmem.server.session_manager import SessionManager
from localmem.times.zones import in_zone, read_zone

Clock = Callable[[], datetime]
ZONE_HEADER = "X-Localmem-Timezone"


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
        settings, sessions = runtime.settings, SessionManager(runtime)
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


async def get_local_time(request: Request, services: SharedServices) -> datetime:
    """The present by the user's clock: in the zone of the request's header, else of the settings. Raises ApiError."""
    name = request.headers.get(ZONE_HEADER)
    try:
        return in_zone(services.now(), services.settings.chat.zone if name is None else read_zone(name.strip()))
    except BadInput as error:
        raise ApiError(400, f"{ZONE_HEADER}: {error}", param=ZONE_HEADER, code="invalid_timezone") from error


LocalTime = Annotated[datetime, Depends(get_local_time)]
