"""Vectors of units as rows of PostgreSQL, for `retrieval.index: pgvector`: the table and its queries.

The table is made when the first memory is opened with that index, because only then the extension must be there. A row
is written once and deleted by an erasure alone. A store that is encrypted refuses, because rows must be readable to be
searched. Does not depend on numpy or on an index.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection

from localmem.errors import BadSettings, StoreError
from localmem.retrieval.base import Match
from localmem.store.database import Database
from localmem.store.turns import Derived, Writer

_TABLE = """
CREATE TABLE IF NOT EXISTS unit_vectors (
    "user" text, system text, encoder text, unit text, digest text NOT NULL, vector vector NOT NULL,
    PRIMARY KEY ("user", system, encoder, unit)
);
CREATE INDEX IF NOT EXISTS ix_unit_vectors_digest ON unit_vectors (digest)
"""
_OF_BANK = '"user" = %s AND system = %s AND encoder = %s'
_PUT = """
INSERT INTO unit_vectors VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT ("user", system, encoder, unit) DO UPDATE SET digest = excluded.digest, vector = excluded.vector
"""

Bank = tuple[str, str, str]


class VectorRows:
    """The table of a store, made when it is first needed. Safe for many threads."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database, self._writer = database, writer
        self._guard = threading.Lock()
        self._is_ready = False

    def open(self) -> None:
        """Make the table where it is missing. Raises BadSettings where rows cannot be searched here."""
        with self._guard:
            if self._is_ready:
                return
            if self._database.files:
                raise BadSettings("retrieval.index is pgvector and the store is a file; set database to PostgreSQL")
            if self._database.keys:
                raise BadSettings("retrieval.index is pgvector and the store is encrypted; use another index")
            try:
                with self._database.write() as connection:
                    self._database.lock_migrations(connection)
                    connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector")
                    connection.exec_driver_sql(_TABLE)
            except StoreError as error:
                raise StoreError(f"retrieval.index pgvector needs the extension of that name: {error}") from error
            self._is_ready = True

    def digests(self, bank: Bank, units: Sequence[str]) -> dict[str, str]:
        """The digest of the key of each of these units that is stored."""
        query = f"SELECT unit, digest FROM unit_vectors WHERE {_OF_BANK} AND unit = ANY(%s)"  # noqa: S608  # our own
        with self._database.read() as connection:
            return {row[0]: row[1] for row in connection.exec_driver_sql(query, (*bank, list(units)))}

    def put(self, bank: Bank, vectors: Iterable[tuple[str, str, Sequence[float]]]) -> None:
        """Store units: the id, the digest of the key, and its vector."""
        rows = [(*bank, unit, digest, _to_text(vector)) for unit, digest, vector in vectors]

        def write(connection: Connection) -> None:
            connection.exec_driver_sql(_PUT, rows)

        if rows:
            self._writer.run(Derived(write))

    def nearest(
        self, bank: Bank, vector: Sequence[float], limit: int, units: Sequence[str] | None = None
    ) -> list[Match]:
        """The `limit` nearest stored units by inner product, and those as near as the last; among these or all."""
        among = "" if units is None else " AND unit = ANY(%s)"
        query = (
            f"SELECT unit, -(vector <#> %s::vector) AS score FROM unit_vectors WHERE {_OF_BANK}{among} "  # noqa: S608
            "ORDER BY score DESC FETCH FIRST %s ROWS WITH TIES"
        )
        more: list[Any] = [] if units is None else [list(units)]
        with self._database.read() as connection:
            rows = connection.exec_driver_sql(query, (_to_text(vector), *bank, *more, limit))
            return [Match(row[0], float(row[1])) for row in rows]


def delete_unit_vectors(connection: Connection, condition: str, values: Iterable[object]) -> int:
    """Delete rows that meet a condition, where there is the table, and return their number."""
    if connection.dialect.name != "postgresql":
        return 0
    if connection.exec_driver_sql("SELECT to_regclass('unit_vectors')").scalar() is None:
        return 0
    return connection.exec_driver_sql(f"DELETE FROM unit_vectors WHERE {condition}", tuple(values)).rowcount  # noqa: S608


def _to_text(vector: Sequence[float]) -> str:
    """As pgvector reads it; nine digits give a float32 back as it was."""
    return f"[{','.join(format(number, '.9g') for number in vector)}]"
