"""DigestRows: the sets of `DigestFiles` as rows of PostgreSQL, so that all servers of a store know the same.

The keys of an encrypted store make the key of the digests; in a plain store, whose rows can be read, they have none.
The table is made when a store is first opened. What an earlier release wrote into files is known where these are.
"""

from collections.abc import Iterable

from sqlalchemy import Connection

from localmem.store.database import Database
from localmem.store.digest_files import DigestFiles, digest_text

_TABLE = 'CREATE TABLE IF NOT EXISTS unlogged ("set" bytea, digest bytea, PRIMARY KEY ("set", digest))'
_ADD = "INSERT INTO unlogged VALUES (%s, %s) ON CONFLICT DO NOTHING"
_KNOWN = 'SELECT digest FROM unlogged WHERE "set" = %s AND digest = ANY(%s)'
_COUNT = 'SELECT count(*) FROM unlogged WHERE "set" = %s'


class DigestRows:
    """The table of a store; `files` are those of an earlier release. Safe for many threads."""

    def __init__(self, database: Database, files: DigestFiles) -> None:
        self._database, self._files = database, files
        self._key = database.keys.derive("digests") if database.keys else b""
        with database.write() as connection:
            if connection.exec_driver_sql("SELECT to_regclass('unlogged')").scalar() is None:
                database.lock_migrations(connection)
                connection.exec_driver_sql(_TABLE)

    def add(self, user: str, *texts: str) -> None:
        """Texts of the user's set, durable on return. Raises StoreError."""
        if not texts:
            return
        rows = sorted({(self._digest(user), self._digest(text)) for text in texts})  # in one order: servers wait
        with self._database.write() as connection:
            connection.exec_driver_sql(_ADD, rows)

    def find(self, user: str, texts: Iterable[str]) -> set[str]:
        """Those of the texts that were added to the user's set."""
        by_digest = {self._digest(text): text for text in texts}
        if not by_digest:
            return set()
        with self._database.read() as connection:
            rows = connection.exec_driver_sql(_KNOWN, (self._digest(user), list(by_digest))).scalars().all()
        return {by_digest[bytes(row)] for row in rows} | self._files.find(user, by_digest.values())

    def count(self, user: str) -> int:
        """The number of texts in the user's set."""
        with self._database.read() as connection:
            return int(connection.exec_driver_sql(_COUNT, (self._digest(user),)).scalar_one())

    def _digest(self, text: str) -> bytes:
        return digest_text(text, self._key)


def drop_digests(connection: Connection) -> None:
    """Delete all sets; the table is made again when the store is next opened."""
    connection.exec_driver_sql("DROP TABLE IF EXISTS unlogged")
