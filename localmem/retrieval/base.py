"""Contracts of retrieval: encoder, embedding cache, retriever, reranker, and the scope of a search.

Does not import any implementation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from localmem.errors import BadInput
from localmem.types import Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Side = Literal["query", "passage"]
IndexKind = Literal["flat", "hnsw", "ivf"]  # an exact index of vectors, a graph, lists


class Match(NamedTuple):
    """The id of a matching unit and its score; higher is better, and comparable only within one retriever."""

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Scope:
    """Limits which units a search may return, and sets the time of the query.

    With a `speaker` only units about that speaker or about both speakers are returned. `since` and `until` bound the
    time of the event, both included. `now` excludes nothing: dates in the query and the age of units are relative to
    it. All times must be timezone-aware; raises BadInput for a naive one.
    """

    speaker: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    now: datetime | None = None

    def __post_init__(self) -> None:
        for name, time in (("since", self.since), ("until", self.until), ("now", self.now)):
            if time is not None:
                require_aware(time, f"the search's {name}")


def require_aware(time: datetime, what: str) -> datetime:
    """The time unchanged. Raises BadInput for a time without a UTC offset, which cannot be compared with others."""
    if time.utcoffset() is None:
        raise BadInput(
            f"{what} is {time.isoformat()}, which has no UTC offset; add one, such as {time.isoformat()}+00:00"
        )
    return time


class Encoder(Protocol):
    """Texts to vectors. `identity` names weights and settings, so that vectors of two encoders are never mixed."""

    @property
    def identity(self) -> str:
        """What a stored vector depends on: the name, the weights' checksum and the settings."""

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""

    def encode(self, texts: Sequence[str], side: Side) -> "NDArray[np.float32]":
        """(n, dimension) float32 rows of unit length, in the order of `texts`."""


@runtime_checkable
class ReadsAhead(Protocol):
    """An encoder that remembers what it encoded last, or an index over one."""

    def read_ahead(self, texts: Sequence[str]) -> None:
        """Encode together what is about to be searched for and added as passages, one part after another."""


class EmbeddingCache(Protocol):
    """Vectors of passages by encoder and content (see `passage_digest`). Safe for use from many threads."""

    def get(self, identity: str, digests: Sequence[str]) -> Mapping[str, bytes]:
        """The stored vectors among these digests: bytes of little-endian float32 numbers."""

    def put(self, identity: str, rows: Mapping[str, bytes]) -> None:
        """Stores these vectors by digest, replacing existing ones, which may be damaged."""


def passage_digest(text: str) -> str:
    """The key of a passage in an EmbeddingCache. Erasure relies on it to find the vectors of an erased text."""
    return sha256(f"passage\0{text}".encode()).hexdigest()


class Retriever(Protocol):
    """An index over the keys of units. Safe for searches while another thread adds."""

    def add(self, units: Sequence[Unit]) -> None:
        """Indexes the units' keys; units already indexed are left unchanged. Raises BadInput for a naive time."""

    def remove(self, ids: Sequence[str]) -> None:
        """Removes these units; unknown ids are ignored."""

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """For each query at most `k` matches, best first, ties in the order of addition; none from an empty index.

        With a scope the result is that of an index which holds only the units within the scope.
        """

    @property
    def memory(self) -> int:
        """Approximate size of the index in bytes."""


class WordShare(NamedTuple):
    """A piece of a text, from the character `start` to `end`, and its part of what the text says in answer."""

    start: int
    end: int
    share: float


class WordFinder(Protocol):
    """Tells which words of a text answer a query."""

    def find_words(self, query: str, texts: Sequence[str]) -> list[list[WordShare]]:
        """For each text its pieces in order; their shares sum up to how likely the text is to hold an answer."""


class Reranker(Protocol):
    """Scores a query and a text read together: slower and more accurate than an index."""

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """A score for each text, in order; higher is better, and comparable only within one query."""


@runtime_checkable
class QueryReader(Protocol):
    """A reranker that also describes a query by itself."""

    @property
    def query_identity(self) -> str:
        """What such a vector depends on."""

    def read_query(self, query: str) -> "NDArray[np.float32] | None":
        """(width,) of unit length; None for a query in a language that the reranker does not know."""
