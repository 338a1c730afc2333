"""Verifies an erasure on raw bytes: no piece of the erased texts is left in the files of the store and its home.

Deleting a row does not overwrite it: SQLite leaves old bytes in free pages and in the write-ahead log. So the files are
searched for pieces of the texts, of 16 bytes, as plain UTF-8 and as JSON writes them: a page that contains only a part
of a text is found too. Short texts are searched for in pieces of 8 bytes. A piece of under 8 bytes would be found by
chance and is not searched for. A piece that another row still contains (someone else said the same), or the definition
of a table, is no trace.

This is the only place that reads rows of all users at once; it compares bytes and returns counts.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Text, select

from localmem.errors import StoreError
from localmem.files import open_apart
from localmem.store.database import Database
from localmem.store.schema import SealedText, metadata

log = logging.getLogger(__name__)

_LONG, _SHORT = 16, 8
_SCHEMA = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
_CHUNK = 1 << 23

# Multiplicative hashing (Knuth, The Art of Computer Programming 3, section 6.4): 2^64 divided by the golden ratio.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Words = NDArray[np.uint64]
Opener = Callable[[Path], AbstractContextManager[IO[bytes]]]


class Check(NamedTuple):
    """Pieces searched for, pieces left (None where there are no files to be read), and other files that hold some."""

    searched: int
    remaining: int | None
    files: tuple[Path, ...] = ()


def check_erasure(database: Database, texts: Collection[str], extra_files: Collection[Path] = ()) -> Check:
    """Search the database's files and `extra_files`; `Check.files` names those of the latter that hold pieces.

    Empties the write-ahead log first; if pieces are left, the main file is rewritten and searched again. While another
    process reads an older snapshot, the pages that it reads cannot be removed and are reported as left.
    """
    searched = pieces(texts)
    if not database.files and not extra_files:
        return Check(0, None)
    database.checkpoint()
    remaining = _find_traces(database, searched, extra_files)
    if remaining:
        try:
            database.vacuum()
        except StoreError as error:  # the rows are deleted all the same, and the receipt counts what is left
            log.warning("traces of erased text are left, and the store could not be rewritten: %s", error)
        remaining = _find_traces(database, remaining, extra_files)
    files = [path for path in extra_files if remaining and find_pieces(remaining, _file_chunks([path]))]
    return Check(len(searched), len(remaining) if database.files or files else None, tuple(files))


def _find_traces(database: Database, searched: Collection[bytes], extra_files: Collection[Path]) -> set[bytes]:
    chunks = chain(_file_chunks(database.files, open_apart), _file_chunks(extra_files))
    traces = find_pieces(searched, chunks)
    if not traces:
        return traces
    with database.read() as connection:
        tables = metadata.tables.values()
        text_columns = [
            [column for column in table.c if isinstance(column.type, Text | SealedText)] for table in tables
        ]
        rows = (row for columns in text_columns if columns for row in connection.execute(select(*columns)))
        texts = ("\0".join(filter(None, row)) for row in rows)
        schema = connection.exec_driver_sql(_SCHEMA).scalars() if database.files else ()
        return traces - find_pieces(traces, _text_chunks(chain(texts, schema)))


def pieces(texts: Iterable[str]) -> set[bytes]:
    """The pieces that identify these texts, each of 16 or 8 bytes."""
    forms = {form for text in texts for form in (text.encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode())}
    return {piece for form in forms for piece in _cut(form)}


def find_pieces(searched: Iterable[bytes], blobs: Iterable[bytes]) -> set[bytes]:
    """Those pieces that occur in one of the blobs. The time grows with the blobs, hardly with the pieces.

    Every byte position of a blob is a candidate. The blob is read as an array of 8-byte words at each of the 8 possible
    alignments, so that numpy compares a whole array at once; a search per piece would take hours for a large store.
    """
    unique = set(searched)
    searches = [_Search({piece for piece in unique if len(piece) == size}) for size in (_LONG, _SHORT)]
    for blob in blobs:
        for shift in range(min(_SHORT, len(blob) - _SHORT + 1)):
            words = np.frombuffer(blob, dtype="<u8", count=(len(blob) - shift) // _SHORT, offset=shift)
            for search in searches:
                search.scan(words)
    return {piece for search in searches for piece in search.matches}


class _Search:
    """Pieces of one size, searched for among all words of a blob at once.

    A bitmap over hashes of the first words rejects nearly all positions at the price of one lookup each; the others are
    compared by a key. A piece of two words has a 64-bit hash as its key: a collision would be a false alarm, never a
    missed piece.
    """

    def __init__(self, searched: Collection[bytes]) -> None:
        self.matches: set[bytes] = set()
        self._by_key: dict[int, bytes] = {}
        if not searched:
            return
        ordered = sorted(searched)
        words = np.frombuffer(b"".join(ordered), dtype="<u8").reshape(len(ordered), -1)
        self._by_key = {int(key): piece for key, piece in zip(_keys(words), ordered, strict=True)}
        self._bits = max(16, len(ordered).bit_length() + 4)  # at most one slot in eight is set
        self._bitmap = np.zeros(1 << self._bits, dtype=np.bool_)
        self._bitmap[_slots(words[:, 0], self._bits)] = True
        self._words_per_piece = words.shape[1]
        self._sorted_keys = np.array(sorted(self._by_key), dtype=np.uint64)

    def scan(self, words: Words) -> None:
        """Add the pieces that begin at one of the words to `matches`."""
        starts = len(words) - self._words_per_piece + 1 if self._by_key else 0
        if starts <= 0:
            return
        places = np.flatnonzero(self._bitmap[_slots(words[:starts], self._bits)])
        keys = _keys(np.stack([words[places + step] for step in range(self._words_per_piece)], axis=1))
        self.matches |= {self._by_key[int(key)] for key in np.intersect1d(keys, self._sorted_keys)}


def _open_here(path: Path) -> IO[bytes]:
    return path.open("rb")


def _file_chunks(paths: Iterable[Path], opened: Opener = _open_here) -> Iterator[bytes]:
    """The bytes of files in chunks that overlap, so that no piece is split between two."""
    for path in paths:
        if not path.exists():
            continue
        with opened(path) as file:
            tail = b""
            while chunk := file.read(_CHUNK):
                yield tail + chunk
                tail = chunk[1 - _LONG :]


def _text_chunks(texts: Iterable[str]) -> Iterator[bytes]:
    """Texts joined into chunks of at least `_CHUNK` bytes."""
    parts: list[bytes] = []
    size = 0
    for text in texts:
        parts.append(text.encode())
        size += len(parts[-1])
        if size > _CHUNK:
            yield b"\0".join(parts)
            parts, size = [], 0
    yield b"\0".join(parts)


def _cut(form: bytes) -> Iterator[bytes]:
    size = _LONG if len(form) >= _LONG else _SHORT
    if len(form) < size:
        return
    yield from (form[start : start + size] for start in range(0, len(form) - size + 1, size))
    yield form[-size:]


def _slots(words: Words, bits: int) -> Words:
    return (words * _GOLDEN) >> np.uint64(64 - bits)


def _keys(words: Words) -> Words:
    """One number for each row of words; the key of a single word is the word."""
    keys = words[:, 0].copy()
    for column in words.T[1:]:
        keys = (keys ^ (keys >> np.uint64(29))) * _GOLDEN + column
    return keys
