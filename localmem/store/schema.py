"""The tables of the store, and the migration of a database to them. Contains no other queries.

sessions ─< turns      the raw log of one user, the source of everything else
batches  ─< changes    what one system made of it; a batch is the changes of one transaction and is undone as a whole
jobs                   one for each closed session and system: whether it has been remembered
banks                  the version of each bank, for compare-and-set
embeddings             derived data: vectors by the identity of the encoder and the digest of the text
encoder                the encoder whose vectors memories are searched with

A migration is one transaction, so a crash leaves the old tables, and an unknown database is refused. Most starts find
the current revision and only read. Alembic is slow to import, so it is loaded only when there is a migration to run.
The revision is checked twice, without a lock and again with it: two processes that start at once both see the old
revision, and the second must not repeat what the first has done.
"""

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import Connection, Dialect, inspect, text
from sqlalchemy.types import TypeDecorator, TypeEngine

from localmem.errors import NewerStore, StoreError
from localmem.store.database import Database

if TYPE_CHECKING:
    from localmem.store.encryption import Keys

REVISION = "0003"

_NAMES = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(referred_table_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
}

metadata = sa.MetaData(naming_convention=_NAMES)

# SQLite assigns row numbers only in a column of the type INTEGER.
_Number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


class SealedText(TypeDecorator[str]):
    """Text that `Database.seal` sealed where the store is encrypted; it is opened as it is read."""

    impl: TypeEngine[Any] | type[TypeEngine[Any]] = sa.Text
    cache_ok: bool | None = True

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """The text as it was written. Raises KeyDestroyed."""
        keys = getattr(dialect, "localmem_keys", None)
        return keys.open(value) if keys and value is not None else value


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
_OPEN = sa.text("state = 'open'")
sa.Index("ix_sessions_open", sessions.c.user, sqlite_where=_OPEN, postgresql_where=_OPEN)

# `zone` is the speaker's offset in seconds east of UTC, because a date in a prompt is the speaker's date.
turns = sa.Table(
    "turns",
    metadata,
    *_columns(sa.Text, "user", "session"),
    *_columns(sa.Integer, "position"),
    *_columns(sa.Text, "id", "role"),
    *_columns(SealedText, "speaker", "text"),
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
    *_columns(SealedText, "body"),
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


SCRIPTS = Path(__file__).with_name("migrations")

# Alembic keeps the running migration in module globals: with two threads, one would run on the other's connection.
_ALEMBIC_LOCK = threading.Lock()


def migrate(database: Database) -> None:
    """Raises NewerStore for a database of a later localmem, StoreError for one of another program."""
    with database.read() as connection:
        if _revision(connection) == REVISION:
            return
    with database.write() as connection:
        database.lock_migrations(connection)
        revision = _revision(connection)
        if revision == REVISION:
            return
        _check(revision, connection, database.where)
        _upgrade(connection)


def check_seal(database: Database) -> None:
    """On PostgreSQL, where no file says so: raises StoreError for a store sealed by other keys, or by none of them."""
    if database.files:
        return
    keys, where = database.keys, database.where
    with database.write() as connection:
        mark = seal_mark(connection)
        if keys is None and mark:
            raise StoreError(f"{where} is encrypted and store.encryption is off; set store.encryption and store.key")
        if keys and not mark and connection.execute(sa.select(turns.c.id).limit(1)).first():
            raise StoreError(f"{where} is not encrypted and store.encryption is on; run `localmem store encrypt`")
        if keys and mark and mark != keys.fingerprint:
            raise StoreError(f"{where} was encrypted with other keys; restore the memory.keys that belongs to it")
        if keys and not mark:
            mark_seal(connection, keys)


def seal_mark(connection: Connection) -> str | None:
    """What `mark_seal` recorded."""
    mark: str | None = connection.execute(text("SELECT obj_description('turns'::regclass)")).scalar()
    return mark


def mark_seal(connection: Connection, keys: "Keys | None") -> None:
    """Record on PostgreSQL, as the comment of a table, whether texts are sealed and by which keys."""
    connection.execute(text(f"COMMENT ON TABLE turns IS '{keys.fingerprint if keys else ''}'"))


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return revision


def _check(revision: str | None, connection: Connection, where: str) -> None:
    if revision is None:
        foreign = sorted(set(inspect(connection).get_table_names()) & set(metadata.tables))
        if foreign:
            raise StoreError(
                f"{where} contains a table {foreign[0]!r} of another program; choose another data directory"
            )
        return
    revisions = {path.name.partition("_")[0] for path in (SCRIPTS / "versions").glob("*.py")}
    if revision not in revisions:
        raise NewerStore(
            f"{where} was written by a newer localmem (schema {revision}, this one has {REVISION}); update localmem"
        )


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    with _ALEMBIC_LOCK:
        command.upgrade(config, "head")
