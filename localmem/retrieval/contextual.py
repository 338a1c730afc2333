"""An index that reads each unit together with what went before it: a reply often makes sense only after its question.

Knows nothing of how the inner one searches. The units stay as they are: what was said before is another unit's, and
goes when that one is erased and the index is made anew.
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
    """`inner`, whose keys are a unit's date, the `before` units of its session that were added last, and its own key.

    Units of a session are added in the order in which they were said. Measured for BM25 in
    configs/eval/results/retrieval.md.
    """

    def __init__(self, inner: Retriever, *, before: int = 1) -> None:
        self._inner = inner
        self._guard = threading.Lock()
        self._said: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=before))
        self._known: set[str] = set()

    def add(self, units: Sequence[Unit]) -> None:
        """Index the units that are not there yet."""
        with self._guard:
            self._inner.add([self._wide(unit) for unit in units if unit.id not in self._known])

    def remove(self, ids: Sequence[str]) -> None:
        """Forget these units."""
        with self._guard:
            self._known.difference_update(ids)
            self._inner.remove(ids)

    def search(self, queries: Sequence[str], k: int, scope: Scope | None = None) -> list[list[Match]]:
        """The inner matches."""
        return self._inner.search(queries, k, scope)

    @property
    def memory(self) -> int:
        """Bytes of the inner index; the last words of each session are little beside it."""
        return self._inner.memory

    def _wide(self, unit: Unit) -> Unit:
        said = self._said[unit.session]
        wide = replace(unit, key="\n".join([_spelled(unit.time.date()), *said, unit.key]))
        said.append(unit.key)
        self._known.add(unit.id)
        return wide


@lru_cache(maxsize=256)  # units of one day come together
def _spelled(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
