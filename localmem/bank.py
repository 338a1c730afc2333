"""Bank: what one system remembers of one user, as a value. Changes make a new bank; no bank is edited in place.

So readers on other threads keep a consistent bank. Does not depend on systems, stores or indexes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar, cast

from localmem.errors import BadInput
from localmem.types import (
    AddLink,
    AddUnit,
    Change,
    Hide,
    Link,
    MarkUnit,
    RefuseText,
    Restore,
    RetireUnit,
    Session,
    SetNote,
    Turn,
    Unit,
)

Key = TypeVar("Key")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Bank:
    """Units (live and retired), links, notes and marks, and the texts that were refused.

    `units` and `retired` are keyed by unit id in the order they were added; a retired unit is in both. `hidden` is
    keyed by what is hidden, a turn or a unit.
    """

    units: Mapping[str, Unit] = field(default_factory=dict)
    retired: Mapping[str, RetireUnit] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[tuple[str, str], float] = field(default_factory=dict)
    refused: tuple[RefuseText, ...] = ()
    hidden: Mapping[str, Hide] = field(default_factory=dict)

    def live(self) -> Iterator[Unit]:
        """Units that recall may show, oldest addition first."""
        return (unit for unit in self.units.values() if self.is_live(unit.id))

    def is_live(self, unit_id: str) -> bool:
        """Whether recall may show this unit."""
        if unit_id not in self.units or unit_id in self.retired:
            return False
        return not self.hidden or self.hidden.keys().isdisjoint((unit_id, *self.units[unit_id].sources))

    def visible(self, session: Session) -> Session:
        """The session without its hidden turns and the replies to them: all of it that may be remembered or shown."""
        return replace(session, turns=self.visible_turns(session.turns))

    def visible_turns(self, turns: Iterable[Turn]) -> tuple[Turn, ...]:
        """The turns, in order, without hidden ones and without the replies to what the user said that is hidden."""
        visible: list[Turn] = []
        replies_are_hidden = False
        for turn in turns:
            is_hidden = turn.id in self.hidden
            if turn.role == "user":
                replies_are_hidden = is_hidden
            if not (is_hidden or replies_are_hidden):
                visible.append(turn)
        return tuple(visible)

    def apply(self, changes: Iterable[Change]) -> "Bank":
        """A bank with the changes applied in order. Each table that changes is copied once.

        Raises BadInput for a change to an unknown unit, or for a new unit whose id belongs to another one.
        """
        changes = list(changes)
        kinds = {type(change) for change in changes}
        units = _draft(self.units, AddUnit in kinds)
        retired = _draft(self.retired, not kinds.isdisjoint((RetireUnit, Restore)))
        hidden = _draft(self.hidden, not kinds.isdisjoint((Hide, Restore)))
        notes = _draft(self.notes, SetNote in kinds)
        marks = _draft(self.marks, MarkUnit in kinds)
        links = list(self.links) if AddLink in kinds else []
        refused = [change for change in changes if isinstance(change, RefuseText)]
        for change in changes:
            match change:
                case AddUnit(unit=unit):
                    if units.setdefault(unit.id, unit) != unit:
                        raise BadInput(f"unit id {unit.id!r} belongs to another unit; give each unit a unique id")
                case RetireUnit(unit=unit_id):
                    _require(unit_id, units)
                    retired.setdefault(unit_id, change)
                case AddLink(link=link):
                    _require(link.source, units)
                    _require(link.target, units)
                    if link not in links[-1:]:
                        links.append(link)
                case SetNote(name=name, text=text):
                    notes[name] = text
                case MarkUnit(unit=unit_id, mark=mark, value=value):  # as with Hide, the unit may come again
                    marks[unit_id, mark] = value
                case Hide() | Restore():
                    _hide(change, hidden, retired)
        links_now = tuple(links) if AddLink in kinds else self.links
        all_refused = (*self.refused, *refused) if refused else self.refused
        return Bank(units, retired, links_now, notes, marks, all_refused, hidden)


def _draft(table: Mapping[Key, Value], changes: bool) -> dict[Key, Value]:
    """A copy of a table that changes, else the table itself."""
    return dict(table) if changes else cast("dict[Key, Value]", table)


def _hide(change: Hide | Restore, hidden: dict[str, Hide], retired: dict[str, RetireUnit]) -> None:
    if isinstance(change, Hide):
        hidden.setdefault(change.item, change)
    else:
        hidden.pop(change.item, None)
        retired.pop(change.item, None)


def _require(unit_id: str, units: Mapping[str, Unit]) -> None:
    if unit_id not in units:
        raise BadInput(f"a change names unit {unit_id!r}, which is not in this bank; rebuild the bank")
