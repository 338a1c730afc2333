"""What the store tells about its rows: plain values. Knows no SQL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from localmem.types import Change, Turn, Unit

SessionState = Literal["open", "closed"]
JobState = Literal["pending", "running", "done", "failed"]
BatchState = Literal["active", "undone", "superseded"]


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session without its words. Times are UTC; `jobs` says per system how remembering it stands."""

    id: str
    state: SessionState
    started: datetime
    ended: datetime
    turns: int
    jobs: Mapping[str, JobState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Job:
    """A closed session that waits to be remembered by one system."""

    user: str
    system: str
    session: str
    state: JobState
    attempts: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """How much of the closed sessions a system has not read yet; `failed` of these sessions failed before."""

    sessions: int
    turns: int
    failed: int


@dataclass(frozen=True, slots=True)
class Event:
    """One change in the life of a unit, and the batch that made it.

    `cause` is the session or the reply turn it came from; `state` tells whether the batch still counts.
    """

    change: Change
    cause: str
    session: str | None
    state: BatchState


@dataclass(frozen=True, slots=True)
class UnitHistory:
    """How one unit came to be: everything that names it, oldest first, and the turns it came from, with their text."""

    unit: Unit
    live: bool
    sources: tuple[Turn, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an erasure removed.

    `rows` counts removed rows by table, and index files. `checked` pieces of the erased texts were looked for in the
    bytes of the store's files, `left` of them (or of the user's index files) were still there (None: the store has no
    files of its own, as on PostgreSQL).
    `again` are the sessions, by system, whose memory was drawn from what is gone: they wait to be read again.
    `sources` are turns that were kept and that an erased unit came from: a rebuild may bring the unit back.
    """

    what: str
    rows: Mapping[str, int]
    checked: int
    left: int | None
    again: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
