"""What the routes share, and how a route gets at it: the runtime, the desk, the doorkeeper, the metrics, the threads.

One for the server, made when the app is; nothing is global.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from localmem.config import Settings
from localmem.runtime import Runtime
from localmem.server.auth import Doorkeeper
from localmem.server.metrics import Metrics
from localmem.server.session_manager import Clock, Desk


@dataclass(frozen=True, slots=True)
class Services:
    """`warm` is set once the backbone has been loaded; replies are made on the threads of `pool`.

    `started` is in unix seconds.
    """

    runtime: Runtime
    settings: Settings
    now: Clock
    desk: Desk
    door: Doorkeeper
    metrics: Metrics
    pool: ThreadPoolExecutor
    started: int
    warm: threading.Event = field(default_factory=threading.Event)

    @classmethod
    def of(cls, runtime: Runtime, now: Clock) -> "Services":
        """For this runtime, by its settings."""
        settings, desk = runtime.settings, Desk(runtime, now)
        pool = ThreadPoolExecutor(settings.server.threads, thread_name_prefix="reply")
        began = int(now().timestamp())
        return cls(runtime, settings, now, desk, Doorkeeper(settings), Metrics(runtime, desk), pool, began)


async def services_of(request: Request) -> Services:
    """The services of the app that the request came to."""
    found: Services = request.app.state.services
    return found


Shared = Annotated[Services, Depends(services_of)]


async def user_of(request: Request, shared: Shared) -> str:
    """Whose memory the request is about. Raises Problem without a valid key."""
    return shared.door.user(request)


User = Annotated[str, Depends(user_of)]
