"""What the page shows of a bank: rows of a list, and one memory with its history. Pure functions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from localmem.bank import Bank
from localmem.chat.quarantine import withheld_signs
from localmem.store import Event, UnitHistory
from localmem.text.dialogue import without_speaker
from localmem.text.provenance import origin_of
from localmem.times.annotate import over_since
from localmem.turns.pins import is_pinned
from localmem.types import AddLink, AddUnit, Hide, Link, MarkUnit, Restore, RetireUnit, Turn, Unit

REPLACING = {"supersedes": "superseded", "corrects": "corrected"}  # relations from a newer unit to what it replaces
STATES = {"current": "In use", "pinned": "Pinned", "aside": "Hidden or replaced", "all": "All"}
_BY_HAND = ("edit:", "pin:", "hide:", "forget:", "release:")  # causes that can be taken back one by one


@dataclass(frozen=True, slots=True)
class Filter:
    """Which memories to list. `words` must all occur in a text; `since` and `until` bound the day of the event."""

    words: str = ""
    since: date | None = None
    until: date | None = None
    session: str = ""
    kind: str = ""
    state: str = "current"

    def holds(self, unit: Unit, bank: Bank) -> bool:
        """Whether the list shows this unit, whatever its text."""
        if (self.kind and unit.kind != self.kind) or (self.session and unit.session != self.session):
            return False
        if self.since or self.until:
            day = unit.time.date()
            if (self.since and day < self.since) or (self.until and day > self.until):
                return False
        return self._has_state(unit, bank)

    def _has_state(self, unit: Unit, bank: Bank) -> bool:
        if self.state == "pinned":
            return is_pinned(bank, unit.id) and bank.is_live(unit.id)
        return self.state == "all" or bank.is_live(unit.id) == (self.state != "aside")


@dataclass(frozen=True, slots=True)
class Row:
    """One memory in a list. `part` is its place in a long message, such as "part 2 of 3".

    `state` is a word or two, "" for a memory in use; `score` is that of a search.
    """

    unit: Unit
    text: str
    speaker: str
    part: str
    state: str
    is_pinned: bool
    origin: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a history: what happened, when, and the cause by which it can be undone, "" if it cannot.

    `other` is the unit on the other side, if it names one; `is_undone` says that the step was taken back.
    """

    text: str
    time: datetime
    session: str
    other: str
    cause: str
    is_undone: bool


@dataclass(frozen=True, slots=True)
class Detail:
    """One memory: its row, the turns it came from, its history, and what it replaced and was replaced by."""

    row: Row
    sources: Sequence[Turn]
    steps: Sequence[Step]
    replaces: Sequence[Row]
    replaced_by: Sequence[Row]
    over_since: date | None
    can_change: bool


def superseded_units(bank: Bank) -> set[str]:
    """The units of which a newer live unit replaces a part or all."""
    return {link.target for link in bank.links if _replaces(link) and bank.is_live(link.source)}


def row_of(
    unit: Unit, bank: Bank, is_superseded: Callable[[str], bool] = lambda _: False, score: float | None = None
) -> Row:
    """A unit as a row."""
    speaker, part, text = split_speaker(unit)
    state, origin = _state(unit, bank, is_superseded), origin_of(unit)
    return Row(unit, text, speaker, part, state, is_pinned(bank, unit.id), origin, score)


def split_speaker(unit: Unit) -> tuple[str, str, str]:
    """Who said a unit's text and which part of a long message it is, "" if that does not stand in it; and the rest."""
    text = without_speaker(unit.text, unit.speaker)
    prefix = unit.text.removesuffix(text)
    part = prefix.removeprefix(unit.speaker).strip(" ():")
    return (unit.speaker if prefix else ""), part, text


def detail_of(history: UnitHistory, bank: Bank, today: date) -> Detail:
    """One memory with all that is known of how it came to be."""
    unit = history.unit
    is_superseded = superseded_units(bank).__contains__
    newer, older = list[str](), list[str]()
    for link in bank.links:
        if _replaces(link) and unit.id in (link.source, link.target):
            (older if link.source == unit.id else newer).append(link.target if link.source == unit.id else link.source)
    for change in (event.change for event in history.events if event.state == "active"):
        if isinstance(change, Hide | RetireUnit):
            item = change.item if isinstance(change, Hide) else change.unit
            (newer if item == unit.id else older).append(change.by if item == unit.id else item)

    def rows(names: Iterable[str]) -> list[Row]:
        units = (bank.units[name] for name in dict.fromkeys(names) if name in bank.units and name != unit.id)
        return [row_of(other, bank, is_superseded) for other in units]

    return Detail(
        row=row_of(unit, bank, is_superseded),
        sources=history.sources,
        steps=[_step(event, unit.id, bank) for event in history.events],
        replaces=rows(older),
        replaced_by=rows(newer),
        over_since=over_since(unit, today),
        can_change=bank.is_live(unit.id),
    )


def _replaces(link: Link) -> bool:
    return link.relation.partition(":")[0] in REPLACING


def _state(unit: Unit, bank: Bank, is_superseded: Callable[[str], bool]) -> str:
    if not bank.is_live(unit.id):
        hide = bank.hidden.get(unit.id)
        if unit.id in withheld_signs(bank):
            return "withheld"
        return "replaced" if unit.id in bank.retired or (hide and hide.by in bank.units) else "hidden"
    return "partly replaced" if is_superseded(unit.id) else ""


def _step(event: Event, unit_id: str, bank: Bank) -> Step:
    text, other = _describe(event, unit_id, bank)
    is_undone = event.state != "active"
    by_hand = event.session is None and event.cause.startswith(_BY_HAND) and not is_undone
    other = other if other in bank.units and other != unit_id else ""
    return Step(text, event.change.time, event.session or "", other, event.cause if by_hand else "", is_undone)


def _describe(event: Event, unit_id: str, bank: Bank) -> tuple[str, str]:
    """What an event did, in words, and the other unit that it names."""
    match event.change:
        case AddUnit():
            return ("Written by hand" if event.session is None else "Remembered"), ""
        case RetireUnit(unit=item, by=by, reason=reason):
            detail = f": {reason}" if reason else ""
            return (f"Replaced{detail}", by) if item == unit_id else (f"Replaced an earlier memory{detail}", item)
        case AddLink(link=link):
            relation, _, _part = link.relation.partition(":")
            percent = f" ({link.probability:.0%})" if link.probability is not None else ""
            is_source = link.source == unit_id
            words = relation
            if relation in REPLACING:
                words = f"it {relation}" if is_source else f"{REPLACING[relation]} by a later memory"
            return f"Linked: {words}{percent}", link.target if is_source else link.source
        case Hide() as hide:
            return _describe_hide(hide, event.cause, unit_id, bank)
        case Restore():
            return "Brought back", ""
        case MarkUnit(mark="pinned", value=value):
            return ("Pinned" if value else "No longer pinned"), ""
        case MarkUnit(mark=mark, value=value):
            return f"Marked: {mark} {value:g}", ""
        case change:
            return change.type.replace("_", " ").capitalize(), ""


def _describe_hide(hide: Hide, cause: str, unit_id: str, bank: Bank) -> tuple[str, str]:
    if sign := withheld_signs(bank).get(hide.item if hide.item == unit_id else ""):
        return f"Withheld, as it may try to instruct a model: {sign}", ""
    if hide.by == unit_id and hide.item not in bank.units:
        return "Hid a reply that quoted the version before it", ""
    if cause.startswith("edit:"):
        return ("Edited by hand", hide.by) if hide.item == unit_id else ("Replaced the version before it", hide.item)
    return "Hidden" if hide.item == unit_id else "Hidden with the message it came from", ""
