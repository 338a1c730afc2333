"""An index of the sessions that are open, which a server looks for every few seconds among those of all users."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_OPEN = sa.text("state = 'open'")


def upgrade() -> None:
    """From 0002."""
    op.create_index("ix_sessions_open", "sessions", ["user"], sqlite_where=_OPEN, postgresql_where=_OPEN)
