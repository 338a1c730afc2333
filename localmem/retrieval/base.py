"""What a retriever and an encoder are. Knows no backend and imports none."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from localmem.types import Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Side = Literal["query", "passage"]


class Match(NamedTuple):
    """A found unit's id and its score; higher is better, and comparable only within one retriever."""

    id: str
    score: float


class Encoder(Protocol):
    """Texts to vectors. `identity` names weights and settings, so that vectors of two encoders are never mixed."""

    @property
    def identity(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def encode(self, texts: Sequence[str], side: Side) -> "NDArray[np.float32]":
        """(n, dimension) float32 rows of unit length, in the order of `texts`."""
        ...


class Retriever(Protocol):
    """An index over the keys of units. Safe for searches while another thread adds."""

    def add(self, units: Sequence[Unit]) -> None:
        """Index the units' keys. A unit that is already there is left as it is."""
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units; unknown ids are ignored."""
        ...

    def search(self, queries: Sequence[str], k: int) -> list[list[Match]]:
        """For each query at most `k` matches, best first, ties in the order of addition. An empty index finds none."""
        ...
