"""Vectors kept by encoder and content, so that no text is encoded twice. Derived data: it may be dropped at any time.

A vector is found only under the identity of the encoder that made it, so vectors of two encoders never mix. Nothing
here knows whose text it was; an erasure drops the vectors of the erased texts, whoever else said the same.
"""

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, Select, delete, insert, select

from localmem.retrieval.base import passage_digest
from localmem.store.database import Database
from localmem.store.schema import embeddings
from localmem.store.sessions import chunks
from localmem.store.writer import Writer


class EmbeddingTable:
    """Fulfils `retrieval.base.EmbeddingCache`. Safe for many threads."""

    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer
        self._add = database.many(insert(embeddings), ("digest", "identity", "vector"))

    def get(self, identity: str, digests: Sequence[str]) -> dict[str, bytes]:
        """What is kept of these: the bytes as they were put."""
        with self._database.read() as connection:
            return read(connection, identity, digests)

    def known(self, identity: str, digests: Sequence[str]) -> set[str]:
        """Which of these are kept."""
        with self._database.read() as connection:
            return {
                digest
                for part in chunks(sorted(set(digests)))
                for digest in connection.execute(_of(identity, part)).scalars()
            }

    def put(self, identity: str, rows: Mapping[str, bytes]) -> None:
        """Keep these; one that is there already is replaced, so that a damaged one does not stay."""
        if rows:
            self._writer.run(lambda connection: self.write(connection, identity, rows))

    def write(self, connection: Connection, identity: str, rows: Mapping[str, bytes]) -> None:
        """`put`, inside a transaction."""
        for part in chunks(sorted(rows)):
            old = delete(embeddings).where(embeddings.c.identity == identity, embeddings.c.digest.in_(part))
            connection.execute(old)
        self._add.run(connection, [(digest, identity, vector) for digest, vector in rows.items()])


def forget(connection: Connection, texts: Iterable[str]) -> int:
    """Drop the vectors of these passages, of all encoders. Returns how many there were."""
    dropped = 0
    for part in chunks(sorted(map(passage_digest, texts))):
        dropped += connection.execute(delete(embeddings).where(embeddings.c.digest.in_(part))).rowcount
    return dropped


def read(connection: Connection, identity: str, digests: Sequence[str]) -> dict[str, bytes]:
    """`get`, inside a transaction."""
    found: dict[str, bytes] = {}
    for part in chunks(sorted(set(digests))):
        rows = connection.execute(_of(identity, part).add_columns(embeddings.c.vector))
        found.update({row[0]: bytes(row[1]) for row in rows})
    return found


def _of(identity: str, digests: Sequence[str]) -> Select[str]:
    return select(embeddings.c.digest).where(embeddings.c.identity == identity, embeddings.c.digest.in_(digests))
