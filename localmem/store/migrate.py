"""Brings a database to the shape of `schema`, in one transaction, and refuses what it does not know.

Alembic is loaded only when there is something to do.
"""

import threading
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from localmem.errors import NewerStore, StoreError
from localmem.store.database import Database
from localmem.store.schema import REVISION, metadata

SCRIPTS = Path(__file__).with_name("migrations")

# Alembic keeps the migration that runs in globals: of two threads' migrations, one would run on the other's connection.
_ONE_AT_A_TIME = threading.Lock()


def prepare(database: Database) -> None:
    """Raises NewerStore for a database of a later localmem, StoreError for one that is not localmem's."""
    with database.read() as connection:
        if _revision(connection) == REVISION:
            return
    with database.write() as connection:
        database.alone(connection)  # another process may have been faster: look again, now under the lock
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
        strange = sorted(set(inspect(connection).get_table_names()) & set(metadata.tables))
        if strange:
            raise StoreError(
                f"{where} holds a table {strange[0]!r} that is not localmem's; choose another data directory"
            )
        return
    known = {path.name.partition("_")[0] for path in (SCRIPTS / "versions").glob("*.py")}
    if revision not in known:
        raise NewerStore(
            f"{where} was written by a newer localmem (schema {revision}, this one knows {REVISION}); update localmem"
        )


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        command.upgrade(config, "head")
