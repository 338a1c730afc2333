"""Retrievers that index something else than the keys of units, around any retriever: texts or single sentences."""

from collections.abc import Sequence
from dataclasses import replace

from localmem.retrieval.base import Match, Retriever, Scope
from localmem.text.parse import sentences
from localmem.types import Unit


class TextRetriever:
    """Indexes the texts of units in place of their keys: for vectors of the words beside BM25 over wide keys.

    A unit without a text is indexed by its key.
    """

    def __init__(self, inner: Retriever) -> None:
        self._inner = inner

    def add(self, units: Sequence[Unit]) -> None:
        """Index the texts of the units."""
        self._inner.add([replace(unit, key=unit.text or unit.key) for unit in units])

    def remove(self, ids: Sequence[str]) -> None:
        """Remove these units."""
        self._inner.remove(ids)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """The matches of the inner retriever."""
        return self._inner.search(queries, k, scope)

    @property
    def memory(self) -> int:
        """Bytes of the inner index."""
        return self._inner.memory


class SentenceRetriever:
    """Indexes each sentence of a unit's key separately; the score of a unit is that of its best sentence.

    One vector for a long turn about several things is near to none of them. Exact: the search is wide enough for `k`
    units, even if all matches of a unit come first.
    """

    def __init__(self, inner: Retriever) -> None:
        self._inner = inner
        self._counts: dict[str, int] = {}

    def add(self, units: Sequence[Unit]) -> None:
        """Index the sentences of new units."""
        parts: list[Unit] = []
        for unit in units:
            if unit.id not in self._counts:
                texts = sentences(unit.key) or [unit.key]
                self._counts[unit.id] = len(texts)
                parts += [replace(unit, id=_part_id(unit.id, number), key=text) for number, text in enumerate(texts)]
        self._inner.add(parts)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove these units."""
        self._inner.remove([_part_id(key, number) for key in ids for number in range(self._counts.pop(key, 0))])

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """The units of the inner matches, each once, with the score of its best sentence."""
        width = k * max(self._counts.values(), default=1)
        return [_best_matches(matches)[:k] for matches in self._inner.search(queries, width, scope)]

    @property
    def memory(self) -> int:
        """Bytes of the inner index."""
        return self._inner.memory


def _part_id(unit_id: str, number: int) -> str:
    return f"{unit_id}#{number}"


def _best_matches(matches: Sequence[Match]) -> list[Match]:
    scores: dict[str, float] = {}
    for match in matches:
        scores.setdefault(match.id.rpartition("#")[0], match.score)
    return [Match(key, score) for key, score in scores.items()]
