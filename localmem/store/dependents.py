"""Which batches depend on which, and so must go when others go. Pure functions of batches; no I/O.

A batch depends on another that added a unit it names, or that wrote the previous text of a note it writes: a note is
always derived from the one before. A session is remembered as a whole, so its batches go together.
"""

from collections.abc import Collection, Iterator, Sequence, Set
from typing import Literal

from localmem.store.change_log import LoggedBatch
from localmem.store.serialization import named_units
from localmem.types import AddLink, AddUnit, Change, MarkUnit, SetNote

Name = tuple[Literal["unit", "note"], str]


def dependents(log: Sequence[LoggedBatch], roots: Collection[int], *, text_only: bool = False) -> set[int]:
    """The numbers of the batches `roots` and of all that depend on them, directly or not.

    `log` is in order. With `text_only`, a link or a mark does not count: it names a unit but repeats none of its text.
    """
    selected, size = set(roots), -1
    while len(selected) > size:  # until a round adds nothing
        size = len(selected)
        sessions = {batch.session for batch in log if batch.number in selected and batch.session is not None}
        selected |= {batch.number for batch in log if batch.session in sessions}
        selected |= _downstream(log, selected, text_only)
    return selected


def adds_unit_from(change: Change, sessions: Set[str], turns: Set[str]) -> bool:
    """Whether the change adds a unit that came from one of these sessions or turns."""
    return isinstance(change, AddUnit) and (
        change.unit.session in sessions or not turns.isdisjoint(change.unit.sources)
    )


def _downstream(log: Sequence[LoggedBatch], selected: Set[int], text_only: bool) -> set[int]:
    """The selected batches and later ones that need what those added. What an earlier batch added too is not lost."""
    first_adders: dict[Name, int] = {}
    lost: set[Name] = set()
    result = set(selected)
    for batch in log:
        if not lost.isdisjoint(_needs(batch.changes, text_only)):
            result.add(batch.number)
        for name in _adds(batch.changes):
            first = first_adders.setdefault(name, batch.number)
            if batch.number in result and (first in result or name[0] == "note"):
                lost.add(name)
    return result


def _adds(changes: Sequence[Change]) -> Iterator[Name]:
    for change in changes:
        if isinstance(change, AddUnit):
            yield "unit", change.unit.id
        elif isinstance(change, SetNote):
            yield "note", change.name


def _needs(changes: Sequence[Change], text_only: bool) -> Iterator[Name]:
    for change in changes:
        if isinstance(change, SetNote):
            yield "note", change.name
        elif not isinstance(change, AddUnit) and not (text_only and isinstance(change, AddLink | MarkUnit)):
            yield from (("unit", unit) for unit in named_units(change) if unit is not None)
