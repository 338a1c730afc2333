"""Segmentation: sessions are cut into topical segments, by a model or evenly (SeCom, section 3).

The contract stands here and imports no weights library.
"""

from collections.abc import Sequence
from typing import Protocol

from localmem.types import Session


class Segmenter(Protocol):
    """Cuts sessions into segments. List in, list out, same order."""

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        """For each session its segments, as ranges over its exchanges: in order, none empty, every exchange once."""
