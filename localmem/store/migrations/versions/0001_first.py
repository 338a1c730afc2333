"""The first schema: the raw log, what systems made of it, jobs, versions of banks, vectors.

A migration is frozen: it creates the tables as they were, whatever `localmem.store.schema` says later.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ACTIVE = sa.text("state = 'active'")
_WAITING = sa.text("state <> 'done'")


def upgrade() -> None:
    """From nothing."""
    _create_log()
    _create_memory()
    _create_work()


def _columns(kind: type[TypeEngine[Any]], *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


def _of_session(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"], name=f"fk_{table}_sessions")


def _create_log() -> None:
    op.create_table(
        "sessions",
        sa.Column("number", _NUMBER, nullable=False),
        *_columns(sa.Text, "user", "id", "state"),
        *_columns(sa.Integer, "position"),
        *_columns(sa.BigInteger, "started", "ended"),
        sa.PrimaryKeyConstraint("number", name="pk_sessions"),
        sa.UniqueConstraint("user", "id", name="uq_sessions_user_id"),
    )
    op.create_table(
        "turns",
        *_columns(sa.Text, "user", "session"),
        *_columns(sa.Integer, "position"),
        *_columns(sa.Text, "id", "role", "speaker", "text"),
        *_columns(sa.BigInteger, "time"),
        *_columns(sa.Integer, "zone"),
        sa.PrimaryKeyConstraint("user", "session", "position", name="pk_turns"),
        sa.UniqueConstraint("user", "id", name="uq_turns_user_id"),
        _of_session("turns"),
        sqlite_with_rowid=False,
    )


def _create_memory() -> None:
    op.create_table(
        "batches",
        sa.Column("number", _NUMBER, nullable=False),
        *_columns(sa.Text, "user", "system", "kind", "cause"),
        sa.Column("session", sa.Text),
        *_columns(sa.Text, "state"),
        sa.PrimaryKeyConstraint("number", name="pk_batches"),
        _of_session("batches"),
    )
    op.create_index("ix_batches_user_system_number", "batches", ["user", "system", "number"])
    op.create_index("ix_batches_user_session", "batches", ["user", "session"])
    of_cause = ["user", "system", "kind", "cause"]
    op.create_index(
        "uq_batches_active_cause", "batches", of_cause, unique=True, sqlite_where=_ACTIVE, postgresql_where=_ACTIVE
    )
    op.create_table(
        "changes",
        sa.Column("batch", _NUMBER, nullable=False),
        *_columns(sa.Integer, "position"),
        *_columns(sa.Text, "user", "system", "type"),
        *_columns(sa.BigInteger, "time"),
        sa.Column("unit", sa.Text),
        sa.Column("other", sa.Text),
        *_columns(sa.Text, "body"),
        sa.PrimaryKeyConstraint("batch", "position", name="pk_changes"),
        sa.ForeignKeyConstraint(["batch"], ["batches.number"], name="fk_changes_batches"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_changes_user_system_unit", "changes", ["user", "system", "unit"])
    op.create_index("ix_changes_user_system_other", "changes", ["user", "system", "other"])


def _create_work() -> None:
    op.create_table(
        "jobs",
        *_columns(sa.Text, "user", "session", "system", "state"),
        *_columns(sa.Integer, "attempts"),
        *_columns(sa.Text, "error", "owner"),
        sa.PrimaryKeyConstraint("user", "session", "system", name="pk_jobs"),
        _of_session("jobs"),
    )
    op.create_index("ix_jobs_waiting", "jobs", ["state"], sqlite_where=_WAITING, postgresql_where=_WAITING)
    op.create_table(
        "banks",
        *_columns(sa.Text, "user", "system"),
        *_columns(sa.BigInteger, "version"),
        sa.PrimaryKeyConstraint("user", "system", name="pk_banks"),
    )
    op.create_table(
        "embeddings",
        *_columns(sa.Text, "digest", "identity"),
        *_columns(sa.LargeBinary, "vector"),
        sa.PrimaryKeyConstraint("digest", "identity", name="pk_embeddings"),
    )
