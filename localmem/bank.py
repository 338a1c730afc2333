"""Bank: what one system remembers of one user, as a value. Changes make a new bank; no bank is edited in place.

So readers on other threads keep a consistent bank. Does not depend on systems, stores or indexes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from localmem.errors import BadInput
from localmem.types import AddLink, AddUnit, Change, Link, MarkUnit, RetireUnit, SetNote, Unit


@dataclass(frozen=True, slots=True)
class Bank:
    """Units (live and retired), links, notes and marks.

    `units` and `retired` are keyed by unit id in the order they were added; a retired unit is in both.
    """

    units: Mapping[str, Unit] = field(default_factory=dict)
    retired: Mapping[str, RetireUnit] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def live(self) -> Iterator[Unit]:
        """Units that recall may show, oldest addition first."""
        return (unit for key, unit in self.units.items() if key not in self.retired)

    def is_live(self, unit_id: str) -> bool:
        """Whether recall may show this unit."""
        return unit_id in self.units and unit_id not in self.retired

    def apply(self, changes: Iterable[Change]) -> "Bank":
        """A bank with the changes applied in order. Each table that changes is copied once.

        Raises BadInput for a change to an unknown unit, or for a new unit whose id belongs to another one.
        """
        draft = _Draft(self)
        for change in changes:
            draft.apply(change)
        return draft.bank()


class _Draft:
    """Copies a table of the bank the first time a change touches it."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._units: dict[str, Unit] | None = None
        self._retired: dict[str, RetireUnit] | None = None
        self._links: list[Link] | None = None
        self._notes: dict[str, str] | None = None
        self._marks: dict[tuple[str, str], float] | None = None

    def apply(self, change: Change) -> None:
        match change:
            case AddUnit(unit=unit):
                self._add(unit)
            case RetireUnit(unit=unit_id):
                self._require(unit_id)
                self._retired = dict(self._bank.retired) if self._retired is None else self._retired
                self._retired.setdefault(unit_id, change)
            case AddLink(link=link):
                self._link(link)
            case SetNote(name=name, text=text):
                self._notes = dict(self._bank.notes) if self._notes is None else self._notes
                self._notes[name] = text
            case MarkUnit(unit=unit_id, mark=mark, value=value):
                self._require(unit_id)
                self._marks = dict(self._bank.marks) if self._marks is None else self._marks
                self._marks[unit_id, mark] = value

    def bank(self) -> Bank:
        old = self._bank
        return Bank(
            units=old.units if self._units is None else self._units,
            retired=old.retired if self._retired is None else self._retired,
            links=old.links if self._links is None else tuple(self._links),
            notes=old.notes if self._notes is None else self._notes,
            marks=old.marks if self._marks is None else self._marks,
        )

    def _table(self) -> Mapping[str, Unit]:
        return self._bank.units if self._units is None else self._units

    def _require(self, unit_id: str) -> None:
        if unit_id not in self._table():
            raise BadInput(f"a change names unit {unit_id!r}, which is not in this bank; rebuild the bank")

    def _add(self, unit: Unit) -> None:
        existing = self._table().get(unit.id)
        if existing is not None and existing != unit:
            raise BadInput(f"unit id {unit.id!r} belongs to another unit; give each unit a unique id")
        self._units = dict(self._bank.units) if self._units is None else self._units
        self._units[unit.id] = unit

    def _link(self, link: Link) -> None:
        self._require(link.source)
        self._require(link.target)
        self._links = list(self._bank.links) if self._links is None else self._links
        if link not in self._links[-1:]:
            self._links.append(link)


def as_of(changes: Iterable[Change], moment: datetime) -> Bank:
    """The bank as it was at `moment`: a replay of the changes until then."""
    return Bank().apply(change for change in changes if change.time <= moment)
