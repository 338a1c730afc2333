"""Journal: the contract by which one user's turns and one system's changes become durable.

The store implements it; `NoJournal` saves nothing. Does not depend on the store.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Protocol

from localmem.bank import Bank
from localmem.errors import BadInput, Conflict, OutOfOrder
from localmem.types import Change, Session, Turn

Extents = Mapping[str, tuple[int, datetime | None]]
"""How many turns a session has, and when the last was said: another one may have the name of one that was erased."""


class Journal(Protocol):
    """Saves one user's turns and one system's changes. Each call is one transaction."""

    def bank(self) -> Bank:
        """The committed bank; later commits are made against it."""

    def is_current(self) -> bool:
        """Whether no other process has changed the bank since it was last read or written here."""

    def sessions(self) -> list[Session]:
        """All sessions as logged, in order; none if nothing is saved."""

    def session(self, session_id: str) -> Session | None:
        """The session as logged, None without a log. Raises NotFound."""

    def reread(self, opened: Extents, waiting: Extents) -> tuple[list[Session], list[Session]] | None:
        """The open sessions and those that wait to be remembered, where they are not these; None where they are.

        Another process may have changed either.
        """

    def add_turns(self, session_id: str, turns: Sequence[Turn], after: str = "") -> None:
        """Add turns; they are durable on return. A turn that exists already changes nothing.

        Raises NotFound where the turn `after`, which they follow or answer, was erased.
        """

    def commit(self, cause: str, changes: Sequence[Change], *, derived: bool = False) -> bool:
        """Save the changes of one exchange; False if the cause was saved before. Raises Conflict if the bank is newer.

        Those that are `derived` come about again from the turns: a power cut may lose them.
        """

    def close(self, session_id: str) -> Session | None:
        """End the session, which then waits to be remembered. Returns it as logged, None without a log."""

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        """Save the session's changes; False if that was done before. Raises Conflict if the bank is newer."""


class NoJournal:
    """Saves nothing: for evaluation in one process."""

    def bank(self) -> Bank:
        raise Conflict("an agent without a journal has no other writer; this is a defect")

    def is_current(self) -> bool:
        return True

    def sessions(self) -> list[Session]:
        return []

    def session(self, session_id: str) -> Session | None:
        return None

    def reread(self, opened: Extents, waiting: Extents) -> None:
        return None

    def add_turns(self, session_id: str, turns: Sequence[Turn], after: str = "") -> None:
        pass

    def commit(self, cause: str, changes: Sequence[Change], *, derived: bool = False) -> bool:
        return True

    def close(self, session_id: str) -> Session | None:
        return None

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        return True


def measure_extents(sessions: Iterable[Session]) -> Extents:
    """Those of these sessions, by id."""
    return {each.id: (len(each.turns), each.turns[-1].time if each.turns else None) for each in sessions}


def check_time(time: object) -> None:
    """Raises BadInput for what is no time with a UTC offset."""
    if not isinstance(time, datetime) or time.utcoffset() is None:
        raise BadInput(f"the time is {time!r}; give a datetime with a UTC offset, such as datetime.now(UTC)")


def check_order(session: Session) -> None:
    """Raises BadInput for a session without turns, OutOfOrder for a turn older than the one before it."""
    if not session.turns:
        raise BadInput(f"session {session.id!r} has no turns; omit it")
    for earlier, later in pairwise(session.turns):
        if later.time < earlier.time:
            raise OutOfOrder(
                f"turn {later.id!r} of {later.time.isoformat()} follows one of {earlier.time.isoformat()}; "
                "give turns in the order they were said"
            )
