"""The first schema: the raw log, what systems made of it, jobs, versions of banks, vectors.

A migration is frozen: it repeats the tables as they were, whatever `localmem.store.schema` says later.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """From nothing."""
    _log()
    _memory()
    _work()


def _log() -> None:
    op.create_table(
        "sessions",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("started", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_sessions"),
        sa.UniqueConstraint("user", "id", name="uq_sessions_user_id"),
    )
    op.create_table(
        "turns",
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("speaker", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("zone", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("user", "session", "position", name="pk_turns"),
        sa.UniqueConstraint("user", "id", name="uq_turns_user_id"),
        sa.ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"], name="fk_turns_sessions"),
        sqlite_with_rowid=False,
    )


def _memory() -> None:
    op.create_table(
        "batches",
        sa.Column("number", _NUMBER, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("cause", sa.Text, nullable=False),
        sa.Column("session", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_batches"),
        sa.ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"], name="fk_batches_sessions"),
    )
    op.create_index("ix_batches_user_system_number", "batches", ["user", "system", "number"])
    op.create_index("ix_batches_user_session", "batches", ["user", "session"])
    op.create_index(
        "uq_batches_active_cause",
        "batches",
        ["user", "system", "kind", "cause"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_table(
        "changes",
        sa.Column("batch", _NUMBER, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("unit", sa.Text),
        sa.Column("other", sa.Text),
        sa.Column("body", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("batch", "position", name="pk_changes"),
        sa.ForeignKeyConstraint(["batch"], ["batches.number"], name="fk_changes_batches"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_changes_user_system_unit", "changes", ["user", "system", "unit"])
    op.create_index("ix_changes_user_system_other", "changes", ["user", "system", "other"])


def _work() -> None:
    op.create_table(
        "jobs",
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("user", "session", "system", name="pk_jobs"),
        sa.ForeignKeyConstraint(["user", "session"], ["sessions.user", "sessions.id"], name="fk_jobs_sessions"),
    )
    op.create_index(
        "ix_jobs_waiting",
        "jobs",
        ["state"],
        sqlite_where=sa.text("state <> 'done'"),
        postgresql_where=sa.text("state <> 'done'"),
    )
    op.create_table(
        "banks",
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("system", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("user", "system", name="pk_banks"),
    )
    op.create_table(
        "embeddings",
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("vector", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("digest", "identity", name="pk_embeddings"),
    )
