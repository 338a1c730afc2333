"""The vectors of memories are of one encoder, which the store records: the rule, and how the encoder is changed.

The embeddings table takes vectors of any encoder, so that the next one's can be made beside those in use. Whoever opens
a memory reads and writes them through here, where each look and each write sees whether the encoder is still the one.
"""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select

from localmem.errors import EncoderMismatch
from localmem.store import embeddings
from localmem.store.database import Database
from localmem.store.embeddings import EmbeddingTable
from localmem.store.schema import embeddings as embeddings_table
from localmem.store.schema import encoder
from localmem.store.writer import Writer

Recorded = tuple[str, int]


class MemoryVectors:
    """Fulfils `retrieval.base.EmbeddingCache` for the encoder that the store records. Safe for many threads.

    The first vector that is put records its encoder. Raises EncoderMismatch for another one from then on, also when
    another process changed the encoder in between.
    """

    def __init__(self, database: Database, writer: Writer, table: EmbeddingTable) -> None:
        self._database = database
        self._writer = writer
        self._table = table

    def encoder(self) -> Recorded | None:
        """The identity and the dimension of the encoder, None as long as no vector was kept."""
        with self._database.read() as connection:
            return _recorded(connection)

    def check(self, identity: str) -> None:
        """Whether an encoder may open a memory here. Raises EncoderMismatch."""
        with self._database.read() as connection:
            self._check(connection, identity)

    def get(self, identity: str, digests: Sequence[str]) -> dict[str, bytes]:
        """What is kept of these: the bytes as they were put."""
        with self._database.read() as connection:
            self._check(connection, identity)
            return embeddings.read(connection, identity, digests)

    def put(self, identity: str, rows: Mapping[str, bytes]) -> None:
        """Keep these; one that is there already is replaced."""
        if rows:
            self._writer.run(lambda connection: self._put(connection, identity, rows))

    def change(self, identity: str, dimension: int) -> int:
        """From now on memories are searched with this encoder; all vectors of others go. Returns how many."""

        def write(connection: Connection) -> int:
            connection.execute(delete(encoder))
            _record(connection, identity, dimension)
            others = delete(embeddings_table).where(embeddings_table.c.identity != identity)
            return connection.execute(others).rowcount

        return self._writer.run(write)

    def _put(self, connection: Connection, identity: str, rows: Mapping[str, bytes]) -> None:
        if self._check(connection, identity) is None:
            _record(connection, identity, len(next(iter(rows.values()))) // 4)
        self._table.write(connection, identity, rows)

    def _check(self, connection: Connection, identity: str) -> Recorded | None:
        held = _recorded(connection)
        if held is not None and held[0] != identity:
            raise EncoderMismatch(
                f"the vectors in {self._database.where} are of the encoder {held[0]!r}, not {identity!r}; run "
                f"`localmem reindex` to change over, or set retrieval.encoder back to {held[0].partition('@')[0]!r}"
            )
        return held


def _recorded(connection: Connection) -> Recorded | None:
    row = connection.execute(select(encoder.c.identity, encoder.c.dimension)).first()
    return (str(row[0]), int(row[1])) if row else None


def _record(connection: Connection, identity: str, dimension: int) -> None:
    connection.execute(insert(encoder).values(number=1, identity=identity, dimension=dimension))
