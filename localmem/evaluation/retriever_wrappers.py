"""Indexes that read something else of a unit than its key, over any retriever: what is shown, or each sentence.

Knows nothing of how the inner one searches.
"""

from collections.abc import Sequence
from dataclasses import replace

from localmem.retrieval.base import Match, Retriever, Scope
from localmem.text.parse import sentences
from localmem.types import Unit


class ReadsText:
    """`inner`, which indexes what units show in place of their keys: beside BM25 over wide keys, vectors of the words.

    A unit that shows nothing is indexed by its key.
    """

    def __init__(self, inner: Retriever) -> None:
        self._inner = inner

    def add(self, units: Sequence[Unit]) -> None:
        """Index the units' texts."""
        self._inner.add([replace(unit, key=unit.text or unit.key) for unit in units])

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units."""
        self._inner.remove(ids)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """The inner matches."""
        return self._inner.search(queries, k, scope)

    @property
    def memory(self) -> int:
        """Bytes of the inner index."""
        return self._inner.memory


class BestSentence:
    """`inner`, which indexes each sentence of a unit's key by itself; a unit scores as its best sentence does.

    A long turn says several things, and one vector of them all is near to none. Exact: so many sentences are searched
    for that `k` units are among them.
    """

    def __init__(self, inner: Retriever) -> None:
        self._inner = inner
        self._counts: dict[str, int] = {}

    def add(self, units: Sequence[Unit]) -> None:
        """Index the sentences of the units that are not there yet."""
        parts: list[Unit] = []
        for unit in units:
            if unit.id not in self._counts:
                said = sentences(unit.key) or [unit.key]
                self._counts[unit.id] = len(said)
                parts += [replace(unit, id=_part(unit.id, number), key=one) for number, one in enumerate(said)]
        self._inner.add(parts)

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units."""
        self._inner.remove([_part(key, number) for key in ids for number in range(self._counts.pop(key, 0))])

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """The units of the inner matches, each once, with the score of its best sentence."""
        width = k * max(self._counts.values(), default=1)
        return [_units(matches)[:k] for matches in self._inner.search(queries, width, scope)]

    @property
    def memory(self) -> int:
        """Bytes of the inner index."""
        return self._inner.memory


def _part(unit_id: str, number: int) -> str:
    return f"{unit_id}#{number}"


def _units(matches: Sequence[Match]) -> list[Match]:
    best: dict[str, float] = {}
    for match in matches:
        best.setdefault(match.id.rpartition("#")[0], match.score)
    return [Match(key, score) for key, score in best.items()]
