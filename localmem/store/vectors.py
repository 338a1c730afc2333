"""Vectors by encoder and content, so that no text is encoded twice. Derived data: it may be deleted at any time.

The table stores vectors of any encoder, so that those of the next one can be made while the current ones are in use. A
vector is looked up under the identity of the encoder that made it, so vectors of two encoders never mix. Memories are
searched with one encoder, which the store records; `MemoryVectors` enforces that on every read and write.

Rows do not say whose text they are of: an erasure deletes the vectors of the erased texts, whoever else wrote the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from localmem.errors import EncoderMismatch
from localmem.retrieval.base import passage_digest
from localmem.store.database import Database
from localmem.store.encryption import VectorKey
from localmem.store.schema import embeddings, encoder
from localmem.store.sessions import chunks
from localmem.store.turns import Derived, Writer
from localmem.store.unit_vectors import delete_unit_vectors

EncoderRecord = tuple[str, int]

# Of every turn, and so text: SQLAlchemy takes longer over an expression than SQLite to run it.
_ENCODER = "SELECT identity, dimension FROM encoder"
_REPLACE = " ON CONFLICT (digest, identity) DO UPDATE SET vector = excluded.vector"
_STORED = "SELECT {columns} FROM embeddings WHERE identity = {mark} AND digest IN ({marks})"


class _Plain:
    """What `VectorKey` does, for a store that is not encrypted: nothing."""

    def seal_digest(self, digest: str) -> str:
        return digest

    def open_digest(self, value: str) -> str | None:
        return value

    def seal(self, vector: bytes) -> bytes:
        return vector

    def open(self, value: bytes) -> bytes | None:
        return value


class EmbeddingTable:
    """An `EmbeddingCache` for any encoder. Safe for many threads."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer
        statement = database.row_statement(insert(embeddings), ("digest", "identity", "vector"))
        self._put_rows = replace(statement, sql=statement.sql + _REPLACE)

    def get(self, identity: str, digests: Sequence[str]) -> dict[str, bytes]:
        """The stored vectors of these digests, as the bytes that were put."""
        key = _vector_key(self._database)
        with self._database.read() as connection:
            self._check(connection, identity)
            stored = self._select(connection, "digest, vector", identity, digests)
            rows = [(key.open_digest(row[0]), key.open(bytes(row[1]))) for row in stored]
        return {digest: vector for digest, vector in rows if digest and vector}

    def put(self, identity: str, rows: Mapping[str, bytes]) -> None:
        """Store vectors. Existing ones are replaced, so that a damaged one does not stay. A power cut may lose them."""
        if rows:
            self._writer.run(Derived(lambda connection: self._put(connection, identity, rows)))

    def all_digests(self) -> set[str]:
        """The digests of all texts that have a vector of any encoder."""
        with self._database.read() as connection:
            return self._open_digests(connection.execute(select(embeddings.c.digest)).scalars())

    def drop(self, digests: Iterable[str]) -> int:
        """Delete the vectors of these texts and return their number; whoever needs one again encodes again."""
        return self._writer.run(lambda connection: _delete(connection, self._database, digests))

    def find_digests(self, identity: str, digests: Sequence[str]) -> set[str]:
        """Those of the digests that have a vector."""
        with self._database.read() as connection:
            return self._open_digests(row[0] for row in self._select(connection, "digest", identity, digests))

    def _select(
        self, connection: Connection, columns: str, identity: str, digests: Sequence[str]
    ) -> Iterator[Sequence[Any]]:
        mark = self._database.placeholder
        for part in _sealed_chunks(_vector_key(self._database), digests):
            query = _STORED.format(columns=columns, mark=mark, marks=", ".join([mark] * len(part)))
            yield from connection.exec_driver_sql(query, (identity, *part))

    def _open_digests(self, digests: Iterable[str]) -> set[str]:
        return set(filter(None, map(_vector_key(self._database).open_digest, digests)))

    def _check(self, connection: Connection, identity: str) -> EncoderRecord | None:
        """The encoder that is recorded, here none. Raises EncoderMismatch where another one may not be used."""
        return None

    def _put(self, connection: Connection, identity: str, rows: Mapping[str, bytes]) -> None:
        key = _vector_key(self._database)
        sealed = [(key.seal_digest(digest), identity, key.seal(vector)) for digest, vector in rows.items()]
        self._put_rows.run(connection, sorted(sealed))  # in one order, as on PostgreSQL the rows are locked


class MemoryVectors(EmbeddingTable):
    """An `EmbeddingCache` for the encoder that the store records. Safe for many threads.

    The first vector that is put records its encoder. From then on `get` and `put` raise EncoderMismatch for another
    encoder, also when another process has changed the encoder in between.
    """

    def encoder(self) -> EncoderRecord | None:
        """The identity and the dimension of the encoder; None before the first vector."""
        with self._database.read() as connection:
            return _recorded_encoder(connection)

    def check(self, identity: str) -> None:
        """Raises EncoderMismatch for an encoder that may not open a memory of this store."""
        with self._database.read() as connection:
            self._check(connection, identity)

    def change_encoder(self, identity: str, dimension: int) -> int:
        """Search memories with this encoder from now on. Deletes all vectors of others and returns their number."""

        def write(connection: Connection) -> int:
            connection.execute(delete(encoder))
            _record_encoder(connection, identity, dimension)
            others = delete(embeddings).where(embeddings.c.identity != identity)
            delete_unit_vectors(connection, "encoder <> %s", [identity])
            return connection.execute(others).rowcount

        return self._writer.run(write)

    def _check(self, connection: Connection, identity: str) -> EncoderRecord | None:
        record = _recorded_encoder(connection)
        if record is not None and record[0] != identity:
            raise EncoderMismatch(
                f"the vectors in {self._database.where} were made by the encoder {record[0]!r}, not {identity!r}; run "
                f"`localmem reindex` to re-embed them, or set retrieval.encoder to {record[0].partition('@')[0]!r}"
            )
        return record

    def _put(self, connection: Connection, identity: str, rows: Mapping[str, bytes]) -> None:
        if self._check(connection, identity) is None:
            _record_encoder(connection, identity, len(next(iter(rows.values()))) // 4)
        super()._put(connection, identity, rows)


def delete_vectors(connection: Connection, database: Database, texts: Iterable[str]) -> int:
    """Delete the vectors of these passages, of all encoders, and return their number."""
    return _delete(connection, database, map(passage_digest, texts))


def reseal_vectors(connection: Connection, old: VectorKey | None, new: VectorKey | None) -> None:
    """Store the vectors that `old` opens under `new` (None: not sealed), and delete the others."""
    before, after = old or _Plain(), new or _Plain()
    for part in chunks(connection.execute(select(embeddings.c.digest)).scalars().all()):
        query = select(embeddings.c.digest, embeddings.c.identity, embeddings.c.vector)
        rows = connection.execute(query.where(embeddings.c.digest.in_(part))).all()
        connection.execute(delete(embeddings).where(embeddings.c.digest.in_(part)))
        opened = [(before.open_digest(row[0]), row[1], before.open(bytes(row[2]))) for row in rows]
        values = [
            {"digest": after.seal_digest(digest), "identity": identity, "vector": after.seal(vector)}
            for digest, identity, vector in opened
            if digest and vector
        ]
        if values:
            connection.execute(insert(embeddings), values)


def _vector_key(database: Database) -> VectorKey | _Plain:
    return database.keys.vectors if database.keys else _Plain()


def _sealed_chunks(key: VectorKey | _Plain, digests: Iterable[str]) -> Iterable[Sequence[str]]:
    return chunks(sorted(map(key.seal_digest, set(digests))))


def _delete(connection: Connection, database: Database, digests: Iterable[str]) -> int:
    parts = _sealed_chunks(_vector_key(database), digests)
    return sum(connection.execute(delete(embeddings).where(embeddings.c.digest.in_(part))).rowcount for part in parts)


def _recorded_encoder(connection: Connection) -> EncoderRecord | None:
    row = connection.exec_driver_sql(_ENCODER).first()
    return (str(row[0]), int(row[1])) if row else None


def _record_encoder(connection: Connection, identity: str, dimension: int) -> None:
    connection.execute(insert(encoder).values(number=1, identity=identity, dimension=dimension))
