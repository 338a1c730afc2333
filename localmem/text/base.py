"""What the trained parts are: a compressor, a pair classifier, a segmenter. Knows none of them.

List in, list out, same order. Systems take these as parts; whoever builds them decides whether weights or an LLM serve.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from localmem.types import Session

Operation = Literal["PASS", "APPEND", "REPLACE", "DELETE"]
OPERATIONS: tuple[Operation, ...] = ("PASS", "APPEND", "REPLACE", "DELETE")  # the digits 0 to 3 (CareCall, section 4)


class Labelled(NamedTuple):
    """What a classifier says of one pair: the operation, and the probability of each (they sum to 1)."""

    operation: Operation
    probabilities: Mapping[Operation, float]


class Compressor(Protocol):
    """Shortens texts by dropping what carries little (LLMLingua-2 in SeCom, section 3)."""

    def compress(self, texts: Sequence[str], rate: float) -> list[str]:
        """Each text with about `rate` (0 to 1) of its tokens kept, in their order."""
        ...


class PairClassifier(Protocol):
    """Decides what a new sentence does to a remembered one (CareCall, section 4)."""

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[Labelled]:
        """For each (memory, sentence) the operation. All pairs go out as one batch."""
        ...


class Segmenter(Protocol):
    """Cuts sessions into topical segments (SeCom, section 3)."""

    def segment(self, sessions: Sequence[Session]) -> list[list[range]]:
        """For each session its segments, as ranges over its exchanges: in order, none empty, every exchange once."""
        ...
