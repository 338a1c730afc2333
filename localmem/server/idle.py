"""Ends sessions that nobody has spoken in for a while, those of earlier runs of the server included.

Knows the desk and two clocks. A session is idle when its last turn is that old by the time of day, or when it was seen
without a new turn for that long by a clock that is never set: a time of day that jumps back must not keep it open.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from localmem.errors import LocalmemError
from localmem.runtime import Runtime
from localmem.server.sessions import Clock, Desk
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
        """End what is idle now. Returns the ids of the sessions that were ended."""
        ended: list[str] = []
        going: set[tuple[str, str]] = set()
        for user in self._runtime.store.users():
            if not self._runtime.store.sessions(user, "open"):
                continue

            def is_idle(session: Session, user: str = user) -> bool:
                going.add((user, session.id))
                return self._is_idle(user, session)

            ended += self._desk.end_idle(user, is_idle)
        self._seen = {key: seen for key, seen in self._seen.items() if key in going}
        return ended

    def _is_idle(self, user: str, session: Session) -> bool:
        if not session.turns:
            return False
        steady = self._steady()
        count, since = self._seen.get((user, session.id), (0, steady))
        if count != len(session.turns):
            since = steady
        self._seen[user, session.id] = (len(session.turns), since)
        unmoved = timedelta(seconds=steady - since)
        return max(self._now() - session.turns[-1].time, unmoved) >= self._idle

    def _watch(self) -> None:
        pause = min(max(self._idle.total_seconds() / 10, 0.5), 30.0)
        while not self._stopping.wait(pause):
            try:
                self.look()
            except LocalmemError as error:
                log.warning("sessions could not be ended: %s", error)  # the next look tries again
