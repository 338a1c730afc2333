"""What a retriever, an encoder and a reranker are, and what narrows a search. Knows no backend and imports none."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from localmem.errors import BadInput
from localmem.types import Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Side = Literal["query", "passage"]


class Match(NamedTuple):
    """A found unit's id and its score; higher is better, and comparable only within one retriever."""

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Scope:
    """Which units a search may find, and when the question is asked.

    `speaker` admits what is about that speaker, and so what is about both sides. `since` and `until` bound the time of
    the event and are within. `now` admits no less: it is what a date in the query and the age of a unit are counted
    from. All times are aware. Raises BadInput for a naive one.
    """

    speaker: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    now: datetime | None = None

    def __post_init__(self) -> None:
        for name, time in (("since", self.since), ("until", self.until), ("now", self.now)):
            if time is not None:
                aware(time, f"a scope's {name}")

    def admits(self, unit: Unit) -> bool:
        """Whether a search may find the unit."""
        return (
            (self.speaker is None or unit.speaker in (self.speaker, ""))
            and (self.since is None or self.since <= unit.time)
            and (self.until is None or unit.time <= self.until)
        )


def aware(time: datetime, what: str) -> datetime:
    """The time as it is. Raises BadInput for one without an offset, which cannot be compared with others."""
    if time.utcoffset() is None:
        raise BadInput(
            f"{what} is {time.isoformat()}, which has no offset; give it one, such as {time.isoformat()}+00:00"
        )
    return time


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
        """Index the units' keys. A unit that is already there is left as it is. Raises BadInput for a naive time."""
        ...

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units; unknown ids are ignored."""
        ...

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """For each query at most `k` matches, best first, ties in the order of addition. An empty index finds none.

        With a scope the answer is that of an index which holds only the units that the scope admits.
        """
        ...

    @property
    def memory(self) -> int:
        """Bytes that the index holds, as near as can be said without counting every object."""
        ...


class Reranker(Protocol):
    """Reads query and text together, and says how well they suit each other; slower and better than an index."""

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """A score for each text, in order; higher is better, and comparable only within one query."""
        ...
