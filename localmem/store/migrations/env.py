"""Entry point of Alembic: runs the migrations on the connection, and in the transaction, of the store."""

from alembic import context

from localmem.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
