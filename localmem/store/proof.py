"""The proof of an erasure: no piece of the erased texts is left in the bytes of the store's files.

A piece that a row still holds (someone else said the same) is no trace. This is the one place that reads rows of all
users at once; it compares bytes and tells nobody's words to anyone.
"""

import logging
from collections.abc import Collection, Iterator
from pathlib import Path

from sqlalchemy import Connection, Text, select

from localmem.errors import StoreError
from localmem.store.database import Database
from localmem.store.scan import file_blobs, pieces, present, text_blobs
from localmem.store.schema import metadata

log = logging.getLogger(__name__)


def prove(database: Database, texts: Collection[str], beside: Collection[Path] = ()) -> tuple[int, int | None]:
    """(pieces looked for, pieces left); None where the database has no files that can be looked into.

    Looks into the database's files and those `beside` it. Empties the write-ahead log first; if something is left, the
    main file is written anew and looked into again. While another process reads an older view of the store, the pages
    that it reads cannot go, and are reported as left.
    """
    wanted = pieces(texts)
    if not database.files:
        return 0, None
    database.settle()
    left = _left(database, wanted, beside)
    if left:
        _repack(database)
        left = _left(database, left, beside)
    return len(wanted), len(left)


def _repack(database: Database) -> None:
    try:
        database.repack()
    except StoreError as error:  # the rows are gone all the same: what is left is told in the receipt
        log.warning("traces of erased words are left, and the store cannot be written anew: %s", error)


def _left(database: Database, wanted: Collection[bytes], beside: Collection[Path]) -> set[bytes]:
    found = present(wanted, file_blobs([*database.files, *beside]))
    if not found:
        return found
    with database.read() as connection:
        return found - present(found, text_blobs(_words(connection)))


def _words(connection: Connection) -> Iterator[str]:
    """The texts of every row."""
    for table in metadata.sorted_tables:
        columns = [column for column in table.columns if isinstance(column.type, Text)]
        rows = connection.execute(select(*columns)) if columns else ()
        yield from ("\0".join(filter(None, row)) for row in rows)
