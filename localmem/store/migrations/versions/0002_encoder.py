"""Records the encoder of the vectors. For an existing store it is the one that made most of them.

A migration is frozen: it creates the tables as they were, whatever `localmem.store.schema` says later.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """From 0001."""
    op.create_table(
        "encoder",
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("dimension", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_encoder"),
    )
    op.execute(
        "INSERT INTO encoder (number, identity, dimension) "
        "SELECT 1, identity, MAX(LENGTH(vector)) / 4 FROM embeddings "
        "GROUP BY identity ORDER BY COUNT(*) DESC, identity LIMIT 1"
    )
