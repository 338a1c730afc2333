"""Dependents: what a person said that rested on something which ended or changed since ("her Lyon dentist").

Sentences that name what ended become doubtful, and those of the same area of life. They are linked, not retired: it may
still hold, so it is shown as said before this changed. Nothing is linked that says something else as well: a mark on
what still holds is worse than a missing one. No model; pure functions.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from localmem.retrieval.views import exchange_of, index_texts
from localmem.systems.evidence.announcements import (
    MINE,
    AnnouncedChange,
    Area,
    plain_line,
    read_announced_change,
    read_rules,
    stems_of,
)
from localmem.systems.evidence.units import STATEMENT
from localmem.types import AddLink, Link, Unit

DOUBTS = "doubts"  # from what changed to what rested on it, "doubts:2" to a sentence by its number among the texts
SAID_BEFORE = "(said before this changed)"
_LATEST = 2000  # statements that are looked at
_SHORT = 12  # words of a statement that is the speaker's own matter without saying so
_SEPARATE = re.compile(r"(?= ,)|(?= (?:and|but|so|while) (?:i|im|ive|my)\b)")
_REFERS = re.compile(r" (?:it|its|he|hes|him|his|she|shes|her|they|them|their|theres?|that|which|who)\b")
_ASIDE = (  # one of several that are named together, or with whom somebody lives
    r"(?<! i)(?<! me)(?<! we) and(?: (?:my|our|an?|the|his|her))?(?: \w+)?(?: called)?THING(?= ,|$)"
    r"| (?:,|have|has|ve|got|with|are|is)(?: (?:my|our|an?|the|called))*(?: \w+)?THING"
    r" and(?: (?:my|our|an?|the))? \w+(?= ,|$)"
    r"| (?:live|lives|living) (?:\w+ ){0,5}with(?: \w+){0,3}THING"
)
_PLACE = re.compile(r"\b(?:in|to|from)\s+(?:the )?([A-ZÀ-ÖØ-Þ][\w-]+)")


class _Earlier(NamedTuple):
    """An earlier statement with its words; the line of each of its sentences is a part of `line`."""

    unit: Unit
    line: str


def rests_on(sentence: str, announcement: AnnouncedChange) -> bool:
    """Whether an earlier sentence is about what ended: of the person who says it, and not of long ago."""
    line, rules = plain_line(sentence), read_rules()
    if announcement.others and announcement.others.isdisjoint(line.split()):
        return False
    other = rules.others.search(line)
    if rules.past.search(line) or (other and not announcement.words.search(other[0])):
        return False
    if announcement.is_named_in(line):
        return not _is_named_aside(line, announcement)
    is_own = MINE.search(line) is not None or len(line.split()) <= _SHORT
    return is_own and _is_of_areas(line, announcement.areas) and not _is_elsewhere(sentence, announcement)


def _is_named_aside(line: str, announcement: AnnouncedChange) -> bool:
    """Whether a sentence is about something else as well: "I live in Hull with my wife and our dog Pippin"."""
    aside = re.compile(_ASIDE.replace("THING", announcement.words.pattern))
    if aside.search(line):
        return True
    clauses = _SEPARATE.split(line)
    named = [announcement.is_named_in(clause) for clause in clauses]
    first = named.index(True) if any(named) else 0
    return any(
        not named[number] and (number < first or not clause.startswith(" ,")) and _is_separate(clause, announcement)
        for number, clause in enumerate(clauses)
    )


def refers_back(sentence: str) -> bool:
    """Whether a sentence may be about what another names: "It costs 900"."""
    return _REFERS.search(plain_line(sentence)) is not None


def _is_separate(clause: str, announcement: AnnouncedChange) -> bool:
    """Whether a clause is of the speaker and refers to nothing in the others."""
    is_own = MINE.search(clause) and not _REFERS.search(clause)
    return bool(is_own) and not _is_of_areas(clause, announcement.areas)


def _is_elsewhere(sentence: str, announcement: AnnouncedChange) -> bool:
    """Whether a sentence names another place than what ended: "Our hotel in Lisbon"."""
    places = {match[1].lower() for match in _PLACE.finditer(sentence)} - read_rules().no_names
    return bool(announcement.things and places)


def link_dependents(units: Iterable[Unit], statements: Callable[[], Iterable[Unit]]) -> list[AddLink]:
    """Links from new statements to sentences that they make doubtful; `statements` returns earlier, newest first."""
    links: dict[tuple[str, str, str], AddLink] = {}
    earlier: list[_Earlier] = []
    for unit in units:
        announcements = [read_announced_change(text) for text in _sentences(unit)] if unit.kind == STATEMENT else []
        for announcement in filter(None, announcements):
            earlier = earlier or _read_statements(statements())
            for old, relation in _resting_on(announcement, earlier):
                if _precedes(old, unit):
                    link = Link(unit.id, old.id, relation)
                    links.setdefault((unit.id, old.id, relation), AddLink(link, unit.learned))
    return list(links.values())


def _read_statements(statements: Iterable[Unit]) -> list[_Earlier]:
    """The latest statements, each with its line."""
    return [_Earlier(unit, plain_line(unit.text)) for unit in islice(statements, _LATEST) if unit.kind == STATEMENT]


def _resting_on(announcement: AnnouncedChange, earlier: Sequence[_Earlier]) -> Iterator[tuple[Unit, str]]:
    """The statements with sentences that are about what ended, and the relations that name these. Few are cut up."""
    named = [announcement.is_named_in(line) for _, line in earlier]
    lines = [line for (_, line), is_named in zip(earlier, named, strict=True) if is_named]
    announcement = _with_areas(_without_kin(announcement, lines), lines)
    for (old, line), is_named in zip(earlier, named, strict=True):
        if is_named or _is_of_areas(line, announcement.areas):
            for number, text in enumerate(_sentences(old), start=1):
                if rests_on(text, announcement):
                    yield old, f"{DOUBTS}:{number}" if len(index_texts(old)) > 1 else DOUBTS


def _without_kin(announcement: AnnouncedChange, lines: Sequence[str]) -> AnnouncedChange:
    """Without those that left and are called kin in a line: a son who moved away goes on with the rest of his life."""
    kin = {
        stem
        for line in lines
        for match in announcement.words.finditer(line)
        if read_rules().kin.search(line[: match.start()])
        for stem in stems_of([match[1]])
    }
    return replace(
        announcement, things=announcement.things - {person for person in announcement.leaving if person <= kin}
    )


def _with_areas(announcement: AnnouncedChange, lines: Sequence[str]) -> AnnouncedChange:
    """With the areas that its things stand for, where it names none: "Rufus died" is about a dog.

    That is told by the thing itself, if one word names it, or by the words right beside it in a line: "our dog Rufus".
    """
    if announcement.areas:
        return announcement
    matches = [match for line in lines for match in announcement.words.finditer(line)]
    alone = [match for match in matches if stems_of([match[1]]) in announcement.things]
    areas = {name for name, area in read_rules().areas.items() if any(_is_about(area, match) for match in alone)}
    return replace(announcement, areas=frozenset(areas))


def _is_about(area: Area, match: re.Match[str]) -> bool:
    before, after = match.string[: match.start()], match.string[match.end() :]
    return bool(area.about.fullmatch(match[0]) or area.before.search(before) or area.after.match(after))


def _sentences(unit: Unit) -> Sequence[str]:
    return index_texts(unit)[1:] or [unit.text]


def _precedes(old: Unit, new: Unit) -> bool:
    return old.time <= new.time and exchange_of(old.id) != exchange_of(new.id)


def _is_of_areas(line: str, areas: frozenset[str]) -> bool:
    """Whether a line has a word of these areas by which a statement rests on them."""
    return bool(areas) and not areas.isdisjoint(_areas_rested_on(line))


@lru_cache(maxsize=8192)  # as with `plain_line`
def _areas_rested_on(line: str) -> frozenset[str]:
    return frozenset(name for name, area in read_rules().areas.items() if area.depends.search(line))
