"""ContextualRetriever: indexes each unit together with the units before it; a reply needs its question to make sense.

Does not depend on how the inner retriever searches. The units themselves stay unchanged: text of an earlier unit is
only in the index, and is gone when that unit is erased and the index is built again.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import lru_cache

from localmem.retrieval.base import Match, Retriever, Scope
from localmem.types import Unit


class ContextualRetriever:
    """`inner`, with keys made of a unit's date, the `context_units` units of its session before it, and its own key.

    Units of a session must be added in the order of the conversation.
    """

    def __init__(self, inner: Retriever, *, context_units: int = 1) -> None:
        self._inner = inner
        self._guard = threading.Lock()
        self._recent: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=context_units))
        self._ids: set[str] = set()

    def add(self, units: Sequence[Unit]) -> None:
        """Indexes the units that are not present yet."""
        with self._guard:
            self._inner.add([self._with_context(unit) for unit in units if unit.id not in self._ids])

    def remove(self, ids: Sequence[str]) -> None:
        """Removes these units."""
        with self._guard:
            self._ids.difference_update(ids)
            self._inner.remove(ids)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """The inner matches."""
        return self._inner.search(queries, k, scope)

    @property
    def memory(self) -> int:
        """Bytes of the inner index; the last units of each session are few beside it."""
        return self._inner.memory

    def _with_context(self, unit: Unit) -> Unit:
        recent = self._recent[unit.session]
        key = "\n".join([_spell(unit.time.date()), *recent, unit.key])
        recent.append(unit.key)
        self._ids.add(unit.id)
        return replace(unit, key=key)


@lru_cache(maxsize=256)  # units of one day come together
def _spell(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
