"""What the routes share, and how a route receives it. Created once per server with the app; nothing is global."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import Annotated

from fastapi import Depends, Header, Request, Security
from fastapi.dependencies.utils import get_flat_dependant
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from localmem.config import Settings
from localmem.errors import BadInput
from localmem.files import nearest
from localmem.llm.remote.line_feed import LoopReader
from localmem.runtime import Runtime
from localmem.server.api_keys import KeyFile, KeyRing, plain_keys
from localmem.server.auth import Authenticator
from localmem.server.errors import ApiError
from localmem.server.metrics import Metrics
from localmem.server.overload import ReplyPool
from localmem.server.session_manager import SessionManager
from localmem.times.zones import in_zone, read_zone

Clock = Callable[[], datetime]
ZONE_HEADER = "X-Localmem-Timezone"


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one server.

    `local_token` is the key of this start for commands on this machine. `warm` is set once the backbone is loaded;
    replies run on the threads of `pool`, and `reader` reads what a backbone streams; `started` is in unix seconds.
    """

    runtime: Runtime
    settings: Settings
    now: Clock
    sessions: SessionManager
    auth: Authenticator
    metrics: Metrics
    pool: ReplyPool
    local_token: str
    started: int
    warm: threading.Event = field(default_factory=threading.Event)
    reader: LoopReader = field(default_factory=LoopReader)

    @classmethod
    def create(cls, runtime: Runtime, now: Clock, token: str) -> "Services":
        """The services of a runtime, by its settings."""
        settings, sessions = runtime.settings, SessionManager(runtime)
        pool = ReplyPool(settings.server.threads, settings.server.waiting)
        keys = KeyRing(plain_keys(settings), KeyFile(settings.key_file))
        auth, metrics = Authenticator(settings, keys, token, now), Metrics(runtime, sessions)
        return cls(runtime, settings, now, sessions, auth, metrics, pool, token, int(now().timestamp()))


async def get_services(request: Request) -> Services:
    """The services of the app that received the request."""
    services: Services = request.app.state.services
    return services


SharedServices = Annotated[Services, Depends(get_services)]


# These only describe headers to readers of the API; what acts on one reads it from the request.
_SCHEME = Security(HTTPBearer(auto_error=False, description="A key of `localmem keys`; none on this machine."))
_USER = Header(alias="X-Localmem-User", description="For an operator's key: act for this user, percent-encoded.")
_ZONE = Header(alias=ZONE_HEADER, description="The user's time zone, as Europe/Berlin, in place of `chat.timezone`.")
_MODE = Header(alias="X-Localmem", description="`write` recalls and stores, `read` only recalls, `off` does neither.")
_SESSION = Header(alias="X-Localmem-Session", description="Continue the session of this name, or begin it.")
UserHeader = Annotated[str | None, _USER]


async def get_user(
    request: Request, services: SharedServices, _key: Annotated[object, _SCHEME] = None, _user: UserHeader = None
) -> str:
    """The user whose memory the request is about. Raises ApiError without a valid key."""
    return services.auth.user(request)


async def check_key(request: Request, services: SharedServices, _key: Annotated[object, _SCHEME] = None) -> None:
    """For what is the same for all users. Raises ApiError without a valid key."""
    services.auth.check(request)


async def check_operator(request: Request, services: SharedServices, _key: Annotated[object, _SCHEME] = None) -> None:
    """Raises ApiError without an operator's key."""
    services.auth.check_operator(request)


User = Annotated[str, Depends(get_user)]
KeyOnly = Depends(check_key)
OperatorOnly = Depends(check_operator)


async def check_query(request: Request) -> None:
    """Raises ApiError for a query parameter that the route does not know: a misspelt one would be ignored."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not request.query_params:
        return
    names = [field.alias for field in get_flat_dependant(route.dependant).query_params]
    for name in request.query_params:
        if name not in names:
            message = f"unknown query parameter {name!r}{nearest(name, names)}; known are {', '.join(names) or 'none'}"
            raise ApiError(400, message, param=name, code="unknown_parameter")


def read_request_zone(request: Request, settings: Settings) -> tzinfo | None:
    """The zone of the user's clock: that of the request's header, else of the settings. Raises ApiError."""
    name = request.headers.get(ZONE_HEADER)
    try:
        return settings.chat.zone if name is None else read_zone(name.strip())
    except BadInput as error:
        raise ApiError(400, f"{ZONE_HEADER}: {error}", param=ZONE_HEADER, code="invalid_timezone") from error


async def get_zone(
    request: Request, services: SharedServices, _zone: Annotated[str | None, _ZONE] = None
) -> tzinfo | None:
    """The zone of the user's clock, None being that of this machine. Raises ApiError."""
    return read_request_zone(request, services.settings)


Zone = Annotated[tzinfo | None, Depends(get_zone)]


async def get_local_time(services: SharedServices, zone: Zone) -> datetime:
    """The present by the user's clock."""
    return in_zone(services.now(), zone)


LocalTime = Annotated[datetime, Depends(get_local_time)]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a chat request, and when by their clock, with the services of the server."""

    services: Services
    request: Request
    user: str
    time: datetime

    @property
    def unix_time(self) -> int:
        """The present in seconds."""
        return int(self.services.now().timestamp())


async def get_caller(
    request: Request,
    services: SharedServices,
    time: LocalTime,
    _key: Annotated[object, _SCHEME] = None,
    _user: UserHeader = None,
    _mode: Annotated[str | None, _MODE] = None,
    _session: Annotated[str | None, _SESSION] = None,
) -> Caller:
    """The caller; a key that is trusted with users may name one in the body's field `user`. Raises ApiError."""
    try:
        body = await request.json()  # read already, for the route's own body
    except ValueError:
        body = None
    named = body.get("user") if isinstance(body, Mapping) else None
    return Caller(services, request, services.auth.user(request, named if isinstance(named, str) else ""), time)


RequestCaller = Annotated[Caller, Depends(get_caller)]
