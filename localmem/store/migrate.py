"""Migrates a database to the tables of `schema`, in one transaction, and refuses an unknown database.

Most starts find the current revision and only read. Alembic is slow to import, so it is loaded only when there is a
migration to run. The revision is checked twice, without a lock and again with it: two processes that start at once both
see the old revision, and the second must not repeat what the first has done. All migrations run in that one
transaction, so a crash leaves the old tables.
"""

import threading
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from localmem.errors import NewerStore, StoreError
from localmem.store.database import Database
from localmem.store.schema import REVISION, metadata

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
