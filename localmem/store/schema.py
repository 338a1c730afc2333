"""The tables of the store. Contains no queries; migrations create these tables in a data directory.

sessions ─< turns      the raw log of one user, the source of everything else
batches  ─< changes    what one system made of it; a batch is the changes of one transaction and is undone as a whole
jobs                   one for each closed session and system: whether it has been remembered
banks                  the version of each bank, for compare-and-set
embeddings             derived data: vectors by the identity of the encoder and the digest of the text
encoder                the encoder whose vectors memories are searched with
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeEngine

REVISION = "0002"

_NAMES = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(referred_table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
}

metadata = MetaData(naming_convention=_NAMES)

# SQLite assigns row numbers only in a column of the type INTEGER.
_Number = BigInteger().with_variant(Integer, "sqlite")


def _columns(kind: type[TypeEngine[Any]], *names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names]


# `position` is for the next turn; `started` and `ended` are the times of the first and last turn (microseconds, UTC).
sessions = Table(
    "sessions",
    metadata,
    Column("number", _Number, primary_key=True),
    *_columns(Text, "user", "id", "state"),
    *_columns(Integer, "position"),
    *_columns(BigInteger, "started", "ended"),
    UniqueConstraint("user", "id"),
)

# `zone` is the speaker's offset in seconds east of UTC, because a date in a prompt is the speaker's date.
turns = Table(
    "turns",
    metadata,
    *_columns(Text, "user", "session"),
    *_columns(Integer, "position"),
    *_columns(Text, "id", "role", "speaker", "text"),
    *_columns(BigInteger, "time"),
    *_columns(Integer, "zone"),
    PrimaryKeyConstraint("user", "session", "position"),
    UniqueConstraint("user", "id"),
    ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"]),
    sqlite_with_rowid=False,
)

# `kind` says what `cause` is: "session" (its job), or "exchange" (a reply turn, or a manual edit without a session).
batches = Table(
    "batches",
    metadata,
    Column("number", _Number, primary_key=True),
    *_columns(Text, "user", "system", "kind", "cause"),
    Column("session", Text),
    *_columns(Text, "state"),
    ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"]),
)
Index(None, batches.c.user, batches.c.system, batches.c.number)
Index(None, batches.c.user, batches.c.session)
_ACTIVE = text("state = 'active'")
_OF_CAUSE = (batches.c.user, batches.c.system, batches.c.kind, batches.c.cause)
Index("uq_batches_active_cause", *_OF_CAUSE, unique=True, sqlite_where=_ACTIVE, postgresql_where=_ACTIVE)

# `unit` and `other` are the units that the change names: added, retired (by), marked, linked (from, to).
changes = Table(
    "changes",
    metadata,
    Column("batch", _Number, nullable=False),
    *_columns(Integer, "position"),
    *_columns(Text, "user", "system", "type"),
    *_columns(BigInteger, "time"),
    Column("unit", Text),
    Column("other", Text),
    *_columns(Text, "body"),
    PrimaryKeyConstraint("batch", "position"),
    ForeignKeyConstraint(["batch"], ["batches.number"]),
    sqlite_with_rowid=False,
)
Index(None, changes.c.user, changes.c.system, changes.c.unit)
Index(None, changes.c.user, changes.c.system, changes.c.other)

# `owner` is the process of a running job.
jobs = Table(
    "jobs",
    metadata,
    *_columns(Text, "user", "session", "system", "state"),
    *_columns(Integer, "attempts"),
    *_columns(Text, "error", "owner"),
    PrimaryKeyConstraint("user", "session", "system"),
    ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"]),
)
_WAITING = text("state <> 'done'")
Index("ix_jobs_waiting", jobs.c.state, sqlite_where=_WAITING, postgresql_where=_WAITING)

banks = Table(
    "banks",
    metadata,
    *_columns(Text, "user", "system"),
    *_columns(BigInteger, "version"),
    PrimaryKeyConstraint("user", "system"),
)

embeddings = Table(
    "embeddings",
    metadata,
    *_columns(Text, "digest", "identity"),
    *_columns(LargeBinary, "vector"),
    PrimaryKeyConstraint("digest", "identity"),
)

# At most one row, with number 1, written with the first vector.
encoder = Table(
    "encoder",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    *_columns(Text, "identity"),
    *_columns(Integer, "dimension"),
)
