"""Looks for pieces of texts in raw bytes: the proof that what was erased is gone. Knows no database.

Texts are looked for in pieces of 16 bytes, as they are and as JSON writes them, so a page that keeps a part of a text
is found out too. A text under 8 bytes is too short to tell from chance and is not looked for.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_PIECE = 16
_WORD = 8
_CHUNK = 1 << 23

# Multiplicative hashing (Knuth, The Art of Computer Programming 3, section 6.4): 2^64 divided by the golden ratio.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_BITS = 18

Words = NDArray[np.uint64]


def pieces(texts: Iterable[str]) -> set[bytes]:
    """The pieces by which these texts would be recognised."""
    return {piece for text in texts for form in _forms(text) for piece in _cut(form)}


def present(wanted: Iterable[bytes], blobs: Iterable[bytes]) -> set[bytes]:
    """Those of the pieces that occur in one of the blobs. Work grows with the blobs, little with the pieces."""
    left: dict[bytes, set[bytes]] = {}
    for piece in wanted:
        left.setdefault(piece[:_WORD], set()).add(piece)
    found: set[bytes] = set()
    if not left:
        return found
    heads = np.frombuffer(b"".join(sorted(left)), dtype="<u8")
    sieve = np.zeros(1 << _BITS, dtype=np.bool_)
    sieve[_slot(heads)] = True
    for blob in blobs:
        for place in _candidates(blob, heads, sieve):
            there = {piece for piece in left[blob[place : place + _WORD]] if blob.startswith(piece, place)}
            left[blob[place : place + _WORD]] -= there
            found |= there
    return found


def file_blobs(paths: Iterable[Path]) -> Iterator[bytes]:
    """The bytes of files in chunks that overlap, so that no piece falls between two."""
    for path in paths:
        if not path.exists():
            continue
        with path.open("rb") as file:
            tail = b""
            while chunk := file.read(_CHUNK):
                yield tail + chunk
                tail = chunk[1 - _PIECE :]


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
    if len(form) < _WORD:
        return
    if len(form) < _PIECE:
        yield form
        return
    yield from (form[start : start + _PIECE] for start in range(0, len(form) - _PIECE + 1, _PIECE))
    yield form[-_PIECE:]


def _slot(words: Words) -> Words:
    return (words * _GOLDEN) >> np.uint64(64 - _BITS)


def _candidates(blob: bytes, heads: Words, sieve: NDArray[np.bool_]) -> Iterator[int]:
    """Places where the first bytes of some piece stand."""
    for shift in range(min(_WORD, len(blob) - _WORD + 1)):
        words = np.frombuffer(blob, dtype="<u8", count=(len(blob) - shift) // _WORD, offset=shift)
        likely = np.flatnonzero(sieve[_slot(words)])
        for index in likely[np.isin(words[likely], heads)]:
            yield int(index) * _WORD + shift
