"""The tables of the store. Contains no queries; migrations create these tables in a data directory.

sessions ─< turns      the raw log of one user, the source of everything else
batches  ─< changes    what one system made of it; a batch is the changes of one transaction and is undone as a whole
jobs                   one for each closed session and system: whether it has been remembered
banks                  the version of each bank, for compare-and-set
embeddings             derived data: vectors by the identity of the encoder and the digest of the text
encoder                the encoder whose vectors memories are searched with
"""

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

# `position` is for the next turn; `started` and `ended` are the times of the first and last turn (microseconds, UTC).
sessions = Table(
    "sessions",
    metadata,
    Column("number", _Number, primary_key=True),
    Column("user", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("ended", BigInteger, nullable=False),
    UniqueConstraint("user", "id"),
)

# `zone` is the speaker's offset in seconds east of UTC, because a date in a prompt is the speaker's date.
turns = Table(
    "turns",
    metadata,
    Column("user", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("position", Integer, nullable=False),
    Column("id", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("speaker", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("zone", Integer, nullable=False),
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
    Column("user", Text, nullable=False),
    Column("system", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("session", Text),
    Column("state", Text, nullable=False),
    ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"]),
)
Index(None, batches.c.user, batches.c.system, batches.c.number)
Index(None, batches.c.user, batches.c.session)
Index(
    "uq_batches_active_cause",
    batches.c.user,
    batches.c.system,
    batches.c.kind,
    batches.c.cause,
    unique=True,
    sqlite_where=text("state = 'active'"),
    postgresql_where=text("state = 'active'"),
)

# `unit` and `other` are the units that the change names: added, retired (by), marked, linked (from, to).
changes = Table(
    "changes",
    metadata,
    Column("batch", _Number, nullable=False),
    Column("position", Integer, nullable=False),
    Column("user", Text, nullable=False),
    Column("system", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("unit", Text),
    Column("other", Text),
    Column("body", Text, nullable=False),
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
    Column("user", Text, nullable=False),
    Column("session", Text, nullable=False),
    Column("system", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("owner", Text, nullable=False),
    PrimaryKeyConstraint("user", "session", "system"),
    ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"]),
)
Index(
    "ix_jobs_waiting",
    jobs.c.state,
    sqlite_where=text("state <> 'done'"),
    postgresql_where=text("state <> 'done'"),
)

banks = Table(
    "banks",
    metadata,
    Column("user", Text, nullable=False),
    Column("system", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    PrimaryKeyConstraint("user", "system"),
)

embeddings = Table(
    "embeddings",
    metadata,
    Column("digest", Text, nullable=False),
    Column("identity", Text, nullable=False),
    Column("vector", LargeBinary, nullable=False),
    PrimaryKeyConstraint("digest", "identity"),
)

# At most one row, with number 1, written with the first vector.
encoder = Table(
    "encoder",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("identity", Text, nullable=False),
    Column("dimension", Integer, nullable=False),
)
