"""What the list of memories needs of all units of a bank, worked out once for each bank and day that is looked at.

A list is looked at many times between two changes: searching as one types asks for it with every letter.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from datetime import date, datetime
from functools import cached_property

from localmem.bank import Bank
from localmem.server.page.memory_views import Filter, superseded_units
from localmem.store import Store
from localmem.types import Unit

_MOST = 8  # banks, of the users and days that were looked at last


class Overview:
    """One bank as a list shows it."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank

    @cached_property
    def newest_first(self) -> list[Unit]:
        """All units, the one learned last first."""
        return list(self.bank.units.values())[::-1]

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of units that there are."""
        return sorted({unit.kind for unit in self.newest_first})

    @cached_property
    def live_count(self) -> int:
        """How many units are in use."""
        return sum(1 for _ in self.bank.live())

    @cached_property
    def first_day(self) -> date | None:
        """The day on which the first unit was learned."""
        first = min((unit.learned for unit in self.newest_first), default=None)
        return first and first.date()

    @cached_property
    def superseded_ids(self) -> set[str]:
        """The units of which a newer one replaces a part or all."""
        return superseded_units(self.bank)

    @cached_property
    def _texts(self) -> list[str]:
        return [unit.text.casefold() for unit in self.newest_first]

    def select(self, chosen: Filter) -> Iterator[Unit]:
        """The units that a filter lets through, the one learned last first."""
        words = chosen.words.casefold().split()
        if not words:
            return (unit for unit in self.newest_first if chosen.holds(unit, self.bank))
        pairs = zip(self.newest_first, self._texts, strict=True)
        matching = (unit for unit, text in pairs if all(word in text for word in words))
        return (unit for unit in matching if chosen.holds(unit, self.bank))


class Overviews:
    """The overviews of the banks that were looked at last, for many threads."""

    def __init__(self, store: Store, system: str) -> None:
        self._store = store
        self._system = system
        self._lock = threading.Lock()
        self._overviews: OrderedDict[tuple[str, datetime | None], tuple[Bank, Overview]] = OrderedDict()

    def find(self, user: str, present: Bank, moment: datetime | None = None) -> Overview:
        """The overview of a user's present bank, or of the bank as it was at a moment."""
        key = user, moment
        with self._lock:
            bank, overview = self._overviews.pop(key, (None, None))
        if overview is None or bank is not present:
            past = None if moment is None else self._store.past_bank(user, self._system, present, moment)
            overview = Overview(present if past is None else past)
        with self._lock:
            self._overviews[key] = present, overview
            while len(self._overviews) > _MOST:
                self._overviews.popitem(last=False)
        return overview
