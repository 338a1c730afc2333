"""Dependents: what a person said that rested on something which ended or changed since ("her Lyon dentist").

A new statement that announces an end or a change, by the words of an area of life, makes earlier ones doubtful: those
that name what ended, and those of the same area. They are linked, not retired: it may still hold, so it is shown as
said before this changed. Words stand in dependents.yaml. No model; pure functions.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from localmem.files import read_yaml
from localmem.retrieval.views import exchange_of, index_texts
from localmem.systems.evidence.units import STATEMENT
from localmem.types import AddLink, Link, Unit

DOUBTS = "doubts"  # from what changed to what rested on it
SAID_BEFORE = "(said before this changed)"
_LATEST = 2000  # statements that are looked at
_NAME = re.compile(r"(?<![.!?:]\s)(?<!^)(?<![.!?:\n\"“])\b(?![A-Z]{2,}\b)[A-ZÀ-ÖØ-Þ][\w’'-]*[\wÀ-ÿ]")
_FIRST = re.compile(
    r"^\W*([A-ZÀ-ÖØ-Þ][a-zà-ÿ]{2,})(?=(?:['’]s)? "
    r"(?:and I|died|passed|retired|is|was|has|closed|ran|moved|broke)\b)"
)
_SHORT = 12  # words of a statement that is the speaker's own matter without saying so
_STEM = 6  # letters that are compared
_ENDING = re.compile(r"(?<=\w{2})(?:([b-df-hj-np-tv-z])\1ing|ing|(?<!s)s)$")  # of "swimming", "climbing", "bees"
_MINE = re.compile(r" (?:i|im|ive|id|ill|my|mine|me|we|were|weve|our|ours|us)\b")


@dataclass(frozen=True)
class AnnouncedChange:
    """What a sentence says ended or changed: areas of life, and the stems of names and nouns of what is no more."""

    areas: frozenset[str]
    names: frozenset[str]

    def is_named_in(self, line: str) -> bool:
        """Whether a word of a line has the stem of a name or noun."""
        words = self._alike.findall(line)
        return bool(words) and not self.names.isdisjoint(_stems(words))

    @cached_property
    def _alike(self) -> re.Pattern[str]:
        """The words that begin as a name or noun does: those of the same stem are among them."""
        return re.compile(rf" ((?:{'|'.join(map(re.escape, self.names))})\w*)" if self.names else "(?!)")


class _Earlier(NamedTuple):
    """An earlier statement with its words; the line of each of its sentences is a part of `line`."""

    unit: Unit
    line: str


def read_announced_change(sentence: str) -> AnnouncedChange | None:
    """What a sentence says ended or changed; None for most."""
    line = _plain(sentence)
    rules = _rules()
    areas = {name for name, area in rules.areas.items() if area.change.search(line)}
    is_over = areas or any(pattern.search(line) for pattern in rules.ends)
    if not is_over or sentence.rstrip().endswith("?") or rules.no_news.search(line):
        return None
    names = _objects(line) | (_names(sentence) - _new_names(sentence) if areas else set())
    return AnnouncedChange(frozenset(areas), frozenset(_stems(names - rules.no_names)))


def rests_on(sentence: str, announcement: AnnouncedChange) -> bool:
    """Whether an earlier sentence is about what ended: of the person who says it, and not of long ago."""
    line, rules = _plain(sentence), _rules()
    if not announcement.is_named_in(line):
        is_own = _MINE.search(line) is not None or len(line.split()) <= _SHORT
        if not is_own or not _is_of_areas(line, announcement.areas):
            return False
    return not (rules.past.search(line) or rules.others.search(line))


def link_dependents(units: Iterable[Unit], statements: Callable[[], Iterable[Unit]]) -> list[AddLink]:
    """Links from new statements to earlier ones that they make doubtful; `statements` returns these, newest first."""
    links: dict[tuple[str, str], AddLink] = {}
    earlier: list[_Earlier] = []
    for unit in units:
        announcements = [read_announced_change(text) for text in _sentences(unit)] if unit.kind == STATEMENT else []
        for announcement in filter(None, announcements):
            earlier = earlier or _read_statements(statements())
            for old in _resting_on(announcement, earlier):
                if _precedes(old, unit):
                    links.setdefault((unit.id, old.id), AddLink(Link(unit.id, old.id, DOUBTS), unit.learned))
    return list(links.values())


def _read_statements(statements: Iterable[Unit]) -> list[_Earlier]:
    """The latest statements, each with its line."""
    return [_Earlier(unit, _plain(unit.text)) for unit in islice(statements, _LATEST) if unit.kind == STATEMENT]


def _resting_on(announcement: AnnouncedChange, earlier: Sequence[_Earlier]) -> list[Unit]:
    """The statements with a sentence that is about what ended. Few have a word of it at all, and are cut up."""
    named = [announcement.is_named_in(line) for _, line in earlier]
    announcement = _with_areas(
        announcement, [line for (_, line), is_named in zip(earlier, named, strict=True) if is_named]
    )
    likely = (old for n, (old, line) in enumerate(earlier) if named[n] or _is_of_areas(line, announcement.areas))
    return [old for old in likely if any(rests_on(text, announcement) for text in _sentences(old))]


def _with_areas(announcement: AnnouncedChange, lines: Sequence[str]) -> AnnouncedChange:
    """With the areas that its names stand for: "Rufus died" is about a dog, by the lines that named Rufus before."""
    areas = {name for name, area in _rules().areas.items() if any(map(area.about.search, lines))}
    return replace(announcement, areas=announcement.areas | areas)


def _sentences(unit: Unit) -> Sequence[str]:
    return index_texts(unit)[1:] or [unit.text]


def _precedes(old: Unit, new: Unit) -> bool:
    return old.time <= new.time and exchange_of(old.id) != exchange_of(new.id)


def _names(text: str) -> set[str]:
    names = {match[0] for match in _NAME.finditer(text)} | set(_FIRST.findall(text))
    return {name.lower().removesuffix("'s").removesuffix("’s") for name in names} - _rules().no_names


def _new_names(sentence: str) -> set[str]:
    """The names of what is new now: "to Nantes"."""
    return {match[1].lower() for match in _rules().new.finditer(sentence)}


def _objects(line: str) -> set[str]:
    """The nouns beside the words that say it is over: "the caravan has gone", "we sold the caravan"."""
    groups = [group for pattern in _rules().ends for match in pattern.finditer(line) for group in match.groups("")]
    return {word for group in groups for word in group.split() if len(word) > 2} - _rules().no_nouns


def _stems(words: Iterable[str]) -> set[str]:
    return {_ENDING.sub(r"\1", word)[:_STEM] for word in words}


def _is_of_areas(line: str, areas: frozenset[str]) -> bool:
    """Whether a line has a word of these areas by which a statement rests on them."""
    return bool(areas) and not areas.isdisjoint(_areas_rested_on(line))


@lru_cache(maxsize=8192)  # as with `_plain`
def _areas_rested_on(line: str) -> frozenset[str]:
    return frozenset(name for name, area in _rules().areas.items() if area.depends.search(line))


@lru_cache(maxsize=8192)  # a user's latest statements are read again with each announcement
def _plain(text: str) -> str:
    """Lower case without apostrophes and marks, with a blank before each word."""
    words = re.findall(r"\w+", re.sub(r"['’](?=s\b)", " ", text.lower()).replace("'", "").replace("’", ""))
    return "".join(f" {word}" for word in words)


class _Area(NamedTuple):
    change: re.Pattern[str]
    about: re.Pattern[str]
    depends: re.Pattern[str]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")

    new: str
    past: str
    others: str
    unreal: str
    ends: list[str]
    no_names: str
    no_nouns: str
    areas: dict[str, dict[str, str]]


@dataclass(frozen=True)
class _Rules:
    areas: Mapping[str, _Area]
    new: re.Pattern[str]
    past: re.Pattern[str]
    others: re.Pattern[str]
    no_news: re.Pattern[str]
    ends: Sequence[re.Pattern[str]]
    no_names: frozenset[str]
    no_nouns: frozenset[str]


@cache
def _rules() -> _Rules:
    table = _Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))
    areas = {
        name: _Area(*(_compile(words.get(field, "(?!)")) for field in _Area._fields))
        for name, words in table.areas.items()
    }
    return _Rules(
        areas,
        re.compile(rf"\b(?i:{_join(table.new)})\s+(?:the |a |an )?([A-ZÀ-ÖØ-Þ][\w-]+)"),
        _compile(table.past),
        _compile(table.others),
        _compile(f"{table.past} | {table.unreal}"),
        [_compile(words) for words in table.ends],
        frozenset(table.no_names.split()),
        frozenset(table.no_nouns.split()),
    )


def _compile(words: str) -> re.Pattern[str]:
    """Of a line as `_plain` writes it: a pattern that begins with a blank is searched for much faster than with \\b."""
    return re.compile(rf" (?:{_join(words)})\b" if words != "(?!)" else words)


def _join(words: str) -> str:
    return words.strip().replace(" | ", "|")
