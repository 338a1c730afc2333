"""Journal: the contract by which an agent makes one user's words and one system's changes durable.

Knows no store; the store fulfils it. NoJournal keeps nothing.
"""

from collections.abc import Sequence
from typing import Protocol

from localmem.bank import Bank
from localmem.errors import Conflict
from localmem.types import Change, Session, Turn


class Journal(Protocol):
    """Where one user's words and one system's changes are made durable. Each call is one transaction."""

    def bank(self) -> Bank:
        """The bank as committed; later commits are made against it."""
        ...

    def is_current(self) -> bool:
        """Whether the bank is still the one that was read, or written from here, last."""
        ...

    def add_turns(self, session_id: str, turns: Sequence[Turn]) -> None:
        """Durable on return. A turn that is there already changes nothing."""
        ...

    def commit(self, cause: str, changes: Sequence[Change]) -> None:
        """The changes of one exchange. The same cause again changes nothing. Raises Conflict on a newer bank."""
        ...

    def close(self, session_id: str) -> Session | None:
        """The session is over and waits to be remembered. Gives it as the log has it, None where there is no log."""
        ...

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        """The session is remembered, with its changes; False if it was before. Raises Conflict on a newer bank."""
        ...


class NoJournal:
    """Keeps nothing: for evaluation, where a life is read and questioned in one process."""

    def bank(self) -> Bank:
        raise Conflict("an agent without a journal has no other writer; this is a defect")

    def is_current(self) -> bool:
        return True

    def add_turns(self, session_id: str, turns: Sequence[Turn]) -> None:
        """Nothing is written."""

    def commit(self, cause: str, changes: Sequence[Change]) -> None:
        """Nothing is written."""

    def close(self, session_id: str) -> Session | None:
        return None

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        return True
