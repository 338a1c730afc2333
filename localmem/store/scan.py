"""Looks for pieces of texts in raw bytes: the proof that what was erased is gone. Knows no database.

Texts are looked for in pieces of 16 bytes, as they are and as JSON writes them, so a page that keeps a part of a text
is found out too; short texts in pieces of 8. What is under 8 bytes cannot be told from chance and is not looked for.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_LONG, _SHORT = 16, 8
_CHUNK = 1 << 23

# Multiplicative hashing (Knuth, The Art of Computer Programming 3, section 6.4): 2^64 divided by the golden ratio.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Words = NDArray[np.uint64]


def pieces(texts: Iterable[str]) -> set[bytes]:
    """The pieces by which these texts would be recognised, each of 16 or 8 bytes."""
    return {piece for text in texts for form in _forms(text) for piece in _cut(form)}


def present(wanted: Iterable[bytes], blobs: Iterable[bytes]) -> set[bytes]:
    """Those of the pieces that occur in one of the blobs. Work grows with the blobs, little with the pieces."""
    sought = set(wanted)
    searches = [_Search({piece for piece in sought if len(piece) == size}) for size in (_LONG, _SHORT)]
    for blob in blobs:
        for shift in range(min(_SHORT, len(blob) - _SHORT + 1)):
            words = np.frombuffer(blob, dtype="<u8", count=(len(blob) - shift) // _SHORT, offset=shift)
            for search in searches:
                search.look(words)
    return {piece for search in searches for piece in search.found}


class _Search:
    """Pieces of one size, looked for among all words of a blob at once.

    A piece of two words is known by a hash of 64 bits; a chance match would be a false alarm, not a missed piece.
    """

    def __init__(self, wanted: Collection[bytes]) -> None:
        self.found: set[bytes] = set()
        self._by_key: dict[int, bytes] = {}
        if not wanted:
            return
        ordered = sorted(wanted)
        words = np.frombuffer(b"".join(ordered), dtype="<u8").reshape(len(ordered), -1)
        self._by_key = {int(key): piece for key, piece in zip(_keys(words), ordered, strict=True)}
        self._bits = max(16, len(ordered).bit_length() + 4)  # so that at most one slot in eight is taken
        self._sieve = np.zeros(1 << self._bits, dtype=np.bool_)
        self._sieve[_slot(words[:, 0], self._bits)] = True
        self._span = words.shape[1]
        self._sought = np.array(sorted(self._by_key), dtype=np.uint64)

    def look(self, words: Words) -> None:
        """Note the pieces that begin at one of the words."""
        if not self._by_key:
            return
        last = len(words) - self._span + 1
        places = (
            np.flatnonzero(self._sieve[_slot(words[:last], self._bits)]) if last > 0 else np.empty(0, dtype=np.int64)
        )
        keys = _keys(np.stack([words[places + step] for step in range(self._span)], axis=1))
        self.found |= {self._by_key[int(key)] for key in np.intersect1d(keys, self._sought)}


def file_blobs(paths: Iterable[Path]) -> Iterator[bytes]:
    """The bytes of files in chunks that overlap, so that no piece falls between two."""
    for path in paths:
        if not path.exists():
            continue
        with path.open("rb") as file:
            tail = b""
            while chunk := file.read(_CHUNK):
                yield tail + chunk
                tail = chunk[1 - _LONG :]


def text_blobs(texts: Iterable[str]) -> Iterator[bytes]:
    """Texts joined into chunks."""
    held: list[bytes] = []
    size = 0
    for text in texts:
        held.append(text.encode())
        size += len(held[-1])
        if size > _CHUNK:
            yield b"\0".join(held)
            held, size = [], 0
    yield b"\0".join(held)


def _forms(text: str) -> set[bytes]:
    return {text.encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}


def _cut(form: bytes) -> Iterator[bytes]:
    size = _LONG if len(form) >= _LONG else _SHORT
    if len(form) < size:
        return
    yield from (form[start : start + size] for start in range(0, len(form) - size + 1, size))
    yield form[-size:]


def _slot(words: Words, bits: int) -> Words:
    return (words * _GOLDEN) >> np.uint64(64 - bits)


def _keys(words: Words) -> Words:
    """One number for each row of words; a row of one word is that word."""
    keys = words[:, 0].copy()
    for column in words.T[1:]:
        keys = (keys ^ (keys >> np.uint64(29))) * _GOLDEN + column
    return keys
