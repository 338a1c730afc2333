"""Generators of a reply's pieces that return the whole: passed on with a copy kept, or run to their end.

Knows nothing of what the pieces are of.
"""

from collections.abc import Generator
from typing import TypeVar

End = TypeVar("End")


def teed(pieces: Generator[str, None, End], said: list[str]) -> Generator[str, None, End]:
    """Passes the pieces on and keeps a copy in `said`; closes the source when it is closed itself."""
    try:
        while True:
            piece = next(pieces)
            said.append(piece)
            yield piece
    except StopIteration as end:
        whole: End = end.value
        return whole
    finally:
        pieces.close()


def drained(pieces: Generator[str, None, End]) -> End:
    """What the generator returns."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            whole: End = end.value
            return whole
