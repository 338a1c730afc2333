"""Which batches stand on which: what must go when others go. Pure functions of batches; writes nothing.

A batch stands on another when it names a unit that the other brought in, or writes a note anew that the other wrote: a
note is always made from the one before. A session is read as a whole, so its batches go together.
"""

from collections.abc import Collection, Iterator, Sequence, Set
from typing import Literal

from localmem.store.change_log import Logged
from localmem.store.serialization import named_units
from localmem.types import AddLink, AddUnit, Change, MarkUnit, SetNote

Name = tuple[Literal["unit", "note"], str]


def standing_on(log: Sequence[Logged], gone: Collection[int], *, in_words: bool = False) -> set[int]:
    """The numbers of `gone` and of all batches that stand on them, directly or not.

    `log` is in order. With `in_words`, a link or a mark does not count: it names a unit but repeats nothing of it.
    """
    taken, before = set(gone), -1
    while len(taken) > before:
        before = len(taken)
        sessions = {batch.session for batch in log if batch.number in taken and batch.session is not None}
        taken |= {batch.number for batch in log if batch.session in sessions}
        taken |= _downstream(log, taken, in_words)
    return taken


def made_of(change: Change, sessions: Set[str], turns: Set[str]) -> bool:
    """Whether a unit comes into the bank that was drawn from one of these sessions or turns."""
    return isinstance(change, AddUnit) and (
        change.unit.session in sessions or not turns.isdisjoint(change.unit.sources)
    )


def _downstream(log: Sequence[Logged], taken: Set[int], in_words: bool) -> set[int]:
    """The taken batches and those after them that stand on them. What a batch before brought in too is not lost."""
    makers: dict[Name, int] = {}
    lost: set[Name] = set()
    gone = set(taken)
    for batch in log:
        if not lost.isdisjoint(_leans(batch.changes, in_words)):
            gone.add(batch.number)
        for name in _brings(batch.changes):
            first = makers.setdefault(name, batch.number)
            if batch.number in gone and (first in gone or name[0] == "note"):
                lost.add(name)
    return gone


def _brings(changes: Sequence[Change]) -> Iterator[Name]:
    for change in changes:
        if isinstance(change, AddUnit):
            yield "unit", change.unit.id
        elif isinstance(change, SetNote):
            yield "note", change.name


def _leans(changes: Sequence[Change], in_words: bool) -> Iterator[Name]:
    """What a batch needs to be there."""
    for change in changes:
        if isinstance(change, SetNote):
            yield "note", change.name
        elif not isinstance(change, AddUnit) and not (in_words and isinstance(change, AddLink | MarkUnit)):
            yield from (("unit", unit) for unit in named_units(change) if unit is not None)
