"""Generators that yield a reply's pieces and return a result: pass them on with a copy, or run them to the end.

Pure functions; they do not depend on what the pieces or the result are.
"""

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")


def tee_pieces(pieces: Generator[str, None, Result], copy: list[str]) -> Generator[str, None, Result]:
    """Yields the pieces and appends each to `copy`; closing this generator closes `pieces`."""
    try:
        while True:
            piece = next(pieces)
            copy.append(piece)
            yield piece
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        pieces.close()


def drain(pieces: Generator[str, None, Result]) -> Result:
    """The generator's return value; its pieces are dropped."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: Result = end.value
            return result
