"""Plain values that the store returns. Does not depend on the database."""

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
    """A session without its text. Times are UTC; `jobs` is the state of its job by system."""

    id: str
    state: SessionState
    started: datetime
    ended: datetime
    turns: int
    jobs: Mapping[str, JobState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionJob:
    """A closed session that one system has to remember."""

    user: str
    system: str
    session: str
    state: JobState
    attempts: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The closed sessions that a system has not remembered yet: `failed` of them after a failed attempt."""

    sessions: int
    turns: int
    failed: int


@dataclass(frozen=True, slots=True)
class Event:
    """A change that names a unit, and the batch that made it.

    `cause` is the session or the reply turn that the batch came from; `state` says whether the batch is in effect.
    """

    change: Change
    cause: str
    session: str | None
    state: BatchState


@dataclass(frozen=True, slots=True)
class UnitHistory:
    """How a unit came to be: all changes that name it, oldest first, and the turns it came from."""

    unit: Unit
    live: bool
    sources: tuple[Turn, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """What an import read; `new` is False when the store already had all of it."""

    user: str
    sessions: int
    turns: int
    batches: int
    new: bool


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an erasure removed.

    `rows` counts deleted rows by table, and index files. `checked` pieces of the erased texts were searched for in the
    bytes of the store's files; `remaining` counts the pieces and index files that are still there (None on PostgreSQL,
    whose files cannot be read). `reread` are sessions, by system, whose memory depended on the erased and was deleted
    too: they wait to be remembered again. `sources` are turns that still exist and that an erased unit came from: a
    rebuild may create the unit again.
    """

    what: str
    rows: Mapping[str, int]
    checked: int
    remaining: int | None
    reread: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
