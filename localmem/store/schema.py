"""The tables of the store. Contains no queries; migrations create these tables in a data directory.

sessions ─< turns      the raw log of one user, the source of everything else
batches  ─< changes    what one system made of it; a batch is the changes of one transaction and is undone as a whole
jobs                   one for each closed session and system: whether it has been remembered
banks                  the version of each bank, for compare-and-set
embeddings             derived data: vectors by the identity of the encoder and the digest of the text
encoder                the encoder whose vectors memories are searched with
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

REVISION = "0002"

_NAMES = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(referred_table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
}

metadata = sa.MetaData(naming_convention=_NAMES)

# SQLite assigns row numbers only in a column of the type INTEGER.
_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _columns(kind: type[TypeEngine[Any]], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


# `position` is for the next turn; `started` and `ended` are the times of the first and last turn (microseconds, UTC).
sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("number", _Number, primary_key=True),
    *_columns(sa.Text, "user", "id", "state"),
    *_columns(sa.Integer, "position"),
    *_columns(sa.BigInteger, "started", "ended"),
    sa.UniqueConstraint("user", "id"),
)

# `zone` is the speaker's offset in seconds east of UTC, because a date in a prompt is the speaker's date.
turns = sa.Table(
    "turns",
    metadata,
    *_columns(sa.Text, "user", "session"),
    *_columns(sa.Integer, "position"),
    *_columns(sa.Text, "id", "role", "speaker", "text"),
    *_columns(sa.BigInteger, "time"),
    *_columns(sa.Integer, "zone"),
    sa.PrimaryKeyConstraint("user", "session", "position"),
    sa.UniqueConstraint("user", "id"),
    sa.ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"]),
    sqlite_with_rowid=False,
)

# `kind` says what `cause` is: "session" (its job), or "exchange" (a reply turn, or a manual edit without a session).
batches = sa.Table(
    "batches",
    metadata,
    sa.Column("number", _Number, primary_key=True),
    *_columns(sa.Text, "user", "system", "kind", "cause"),
    sa.Column("session", sa.Text),
    *_columns(sa.Text, "state"),
    sa.ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"]),
)
sa.Index(None, batches.c.user, batches.c.system, batches.c.number)
sa.Index(None, batches.c.user, batches.c.session)
_ACTIVE = sa.text("state = 'active'")
_OF_CAUSE = (batches.c.user, batches.c.system, batches.c.kind, batches.c.cause)
sa.Index("uq_batches_active_cause", *_OF_CAUSE, unique=True, sqlite_where=_ACTIVE, postgresql_where=_ACTIVE)

# `unit` and `other` are the units that the change names: added, retired (by), marked, linked (from, to).
changes = sa.Table(
    "changes",
    metadata,
    sa.Column("batch", _Number, nullable=False),
    *_columns(sa.Integer, "position"),
    *_columns(sa.Text, "user", "system", "type"),
    *_columns(sa.BigInteger, "time"),
    sa.Column("unit", sa.Text),
    sa.Column("other", sa.Text),
    *_columns(sa.Text, "body"),
    sa.PrimaryKeyConstraint("batch", "position"),
    sa.ForeignKeyConstraint(["batch"], ["batches.number"]),
    sqlite_with_rowid=False,
)
sa.Index(None, changes.c.user, changes.c.system, changes.c.unit)
sa.Index(None, changes.c.user, changes.c.system, changes.c.other)

# `owner` is the process of a running job.
jobs = sa.Table(
    "jobs",
    metadata,
    *_columns(sa.Text, "user", "session", "system", "state"),
    *_columns(sa.Integer, "attempts"),
    *_columns(sa.Text, "error", "owner"),
    sa.PrimaryKeyConstraint("user", "session", "system"),
    sa.ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"]),
)
_WAITING = sa.text("state <> 'done'")
sa.Index("ix_jobs_waiting", jobs.c.state, sqlite_where=_WAITING, postgresql_where=_WAITING)

banks = sa.Table(
    "banks",
    metadata,
    *_columns(sa.Text, "user", "system"),
    *_columns(sa.BigInteger, "version"),
    sa.PrimaryKeyConstraint("user", "system"),
)

embeddings = sa.Table(
    "embeddings",
    metadata,
    *_columns(sa.Text, "digest", "identity"),
    *_columns(sa.LargeBinary, "vector"),
    sa.PrimaryKeyConstraint("digest", "identity"),
)

# At most one row, with number 1, written with the first vector.
encoder = sa.Table(
    "encoder",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    *_columns(sa.Text, "identity"),
    *_columns(sa.Integer, "dimension"),
)
