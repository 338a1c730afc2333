"""Ends sessions that nobody has spoken in for a while, those of earlier runs of the server included.

Knows the desk and two clocks. A session is idle when its last turn is that old by the time of day, or when it was seen
without a new turn for that long by a clock that is never set: a time of day that jumps back must not keep it open.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from localmem.errors import LocalmemError
from localmem.runtime import Runtime
from localmem.server.session_manager import Clock, Desk
from localmem.store.records import SessionInfo
from localmem.types import Session

log = logging.getLogger(__name__)


class IdleWatch:
    """A thread that looks at all open sessions now and then."""

    def __init__(
        self,
        runtime: Runtime,
        desk: Desk,
        now: Clock,
        *,
        idle: timedelta,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runtime = runtime
        self._desk = desk
        self._now = now
        self._idle = idle
        self._steady = steady
        self._seen: dict[tuple[str, str], tuple[int, float]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="idle-watch", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._stopping.set()
        self._thread.join()

    def look(self) -> list[str]:
        """End what is idle now. Returns the ids of the sessions that were ended.

        The store tells what is idle, so that a look makes no agent of a user who has gone.
        """
        ended: list[str] = []
        going: set[tuple[str, str]] = set()
        for user in self._runtime.store.users():
            open_now = self._runtime.store.sessions(user, "open")
            going.update((user, info.id) for info in open_now)
            idle = {info.id: info.turns for info in open_now if self._is_idle(user, info)}
            if idle:
                ended += self._desk.end_idle(user, partial(_unmoved, idle))
        self._seen = {key: seen for key, seen in self._seen.items() if key in going}
        return ended

    def _is_idle(self, user: str, info: SessionInfo) -> bool:
        if not info.turns:
            return False
        steady = self._steady()
        count, since = self._seen.get((user, info.id), (0, steady))
        if count != info.turns:
            since = steady
        self._seen[user, info.id] = (info.turns, since)
        unmoved = timedelta(seconds=steady - since)
        return max(self._now() - info.ended, unmoved) >= self._idle

    def _watch(self) -> None:
        pause = min(max(self._idle.total_seconds() / 10, 0.5), 30.0)
        while not self._stopping.wait(pause):
            try:
                self.look()
            except LocalmemError as error:
                log.warning("sessions could not be ended: %s", error)  # the next look tries again


def _unmoved(idle: Mapping[str, int], session: Session) -> bool:
    """Whether a session that is idle, given with its number of turns, has got none since it was looked at."""
    return len(session.turns) <= idle.get(session.id, -1)
