"""Pinned memories: those that a person wants shown with every recall, whatever is asked.

A pin is a mark of a unit, so it has a history and can be taken back. Does not depend on any system.
"""

from dataclasses import replace

from localmem.bank import Bank
from localmem.memory import Memory
from localmem.text.dialogue import IN_SIGHT, dated_lines
from localmem.types import Hit, Recall, Session, Unit

PINNED = "pinned"
_MOST = 20  # memories, the ones pinned last: each takes room in every prompt
_SCORE = 0.5  # no search has ranked it


def is_pinned(bank: Bank, unit_id: str) -> bool:
    """Whether a person has pinned this unit."""
    return bool(bank.marks.get((unit_id, PINNED)))


def pinned_units(bank: Bank) -> list[Unit]:
    """The live pinned units, the one pinned first at the start; at most twenty."""
    names = [unit for (unit, mark), value in bank.marks.items() if mark == PINNED and value and bank.is_live(unit)]
    return [bank.units[name] for name in names[-_MOST:]]


def recall_with_pins(memory: Memory, session: Session) -> Recall:
    """What the model is shown for the session's last turn, with the pinned units that no search brought up first."""
    recall = memory.recall_shown(session)
    present = {turn.id for turn in session.turns[-IN_SIGHT - 1 :]} | {hit.unit.id for hit in recall.hits}
    units = [unit for unit in pinned_units(memory.bank) if present.isdisjoint((unit.id, *unit.sources))]
    if not units or recall.reply:
        return recall
    text = dated_lines(units, session.turns[-1].time.date() if memory.show else None)
    hits = (*(Hit(unit, _SCORE) for unit in units), *recall.hits)
    return replace(recall, text="\n".join(filter(None, (text, recall.text))), hits=hits)
