"""What a question asks about time and amounts: the kind of answer, the times that it speaks of, the order it asks for.

Decided by words, from the phrases of questions.yaml. Knows no memory: what fits a wish is for the caller to prefer.
"""

import re
from collections.abc import Iterable, Set
from datetime import date
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from localmem.files import read_yaml
from localmem.times.amounts import is_currency
from localmem.times.cues import tells
from localmem.times.resolver import find_times
from localmem.types import DateRange, TimeSpan

Kind = Literal["order", "often", "times", "age", "ago", "total", "difference", "listed", "duration", "when"]
Order = Literal["", "first", "last"]

_KINDS: tuple[Kind, ...] = get_args(Kind)  # likeliest first
_OF_AMOUNTS = ("total", "difference", "listed")
_APOSTROPHES = re.compile(r"['’‘`´]")
_IS = re.compile(r"(?:(?<=\bday)|(?<=\bdate))['’]s\b")
_POSSESSIVE = re.compile(r"['’‘`´]s\b")
_WORD = re.compile(r"[^\W\d_]{3,}")
_STEM = 5  # characters by which words are compared, so that "operate" is "operation"
_CLOSED = re.compile(r"(?:did|do|does|is|are|was|were|have|has|can|could|will|would) ")  # opens a yes-or-no question
_COUNTED = re.compile(
    r"\bhow many (?:more )?(?!(?:had|have|has|did|do|does|are|is|were|was)\b)(\w+(?:\s\w+){0,2})", re.IGNORECASE
)
_WHEN = re.compile(r"\bwhen (?:i|we|my|our)\b")
_SENTENCE_END = re.compile(r"(?<=[.!])\s+")
_HOW_MUCH = re.compile(r"\b(?:how much|what)\b", re.IGNORECASE)
_LIST = re.compile(r"[,;:?!.–]|\b(?:and|plus|with)\b", re.IGNORECASE)
_YEAR = re.compile(r"\d{4}|next|tomorrow")
_BEFORE = re.compile("before|un?till?|vor|bis|bevor|avant|jusqu")


class Relation(NamedTuple):
    """Before or after an event, by the event's words."""

    before: bool
    anchor: str


class TimeQuestion(NamedTuple):
    """What a question asks about time, all empty where it asks nothing.

    `kinds` are what it may ask for, likeliest first. `ranges` are the times that it names, in every reading. `parts`
    are the words of two events that it sets a duration between. `remains` says that it asks for what is still to come.
    """

    kinds: tuple[Kind, ...] = ()
    ranges: tuple[DateRange, ...] = ()
    order: Order = ""
    relation: Relation | None = None
    parts: tuple[str, str] | None = None
    remains: bool = False


class _Language:
    """The phrases of one language, compiled."""

    def __init__(self, phrases: dict[str, str]) -> None:
        self.common = frozenset(phrases["common"].split())
        parts = {name: [" ".join(part.split()) for part in phrases[name].split(" | ")] for name in phrases}
        self.splits = [re.compile(rf"(?<!\w)(?:{part})") for part in parts["split"]]
        self.patterns = {
            name: re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)})(?!\w)")
            for name, alternatives in parts.items()
            if name not in ("common", "split", "kindred")
        }

    def split(self, question: str) -> tuple[str, str] | None:
        """The words of two events, the earlier first where the question tells."""
        matches = (pattern.search(question) for pattern in self.splits)
        return next(((match["a"], match["b"]) for match in matches if match), None)

    def knows(self, words: Iterable[str]) -> int:
        """How many of the words are frequent ones of this language."""
        return sum(word in self.common for word in words)


@cache
def _phrases() -> dict[str, dict[str, str]]:
    table: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
    return table


@cache
def _languages() -> list[_Language]:
    return [_Language(phrases) for phrases in _phrases().values()]


def _language(folded: str) -> _Language:
    words = folded.split()
    return max(_languages(), key=lambda language: language.knows(words))


def read_question(question: str, day: date) -> TimeQuestion:
    """What a question of this day asks about time and amounts."""
    folded = _APOSTROPHES.sub("", _IS.sub(" is", question.lower()))
    language = _language(folded)
    matches = {name: pattern.search(folded) for name, pattern in language.patterns.items()}
    is_closed = _CLOSED.match(folded) is not None
    kinds = tuple(kind for kind in _KINDS if matches.get(kind) and not (is_closed and kind in _OF_AMOUNTS))
    if tells("asks who", folded) and not _HOW_MUCH.search(folded):  # "who is left of the three"
        kinds = tuple(kind for kind in kinds if kind not in _OF_AMOUNTS)
    if "listed" in kinds and not tells("asks for money", question):
        kinds = tuple(kind for kind in kinds if kind != "listed")
    kinds = _without_rivals(kinds, folded)
    if "ago" in kinds:  # "how many days ago did I order it when it came" asks for a length of time between two events
        kinds = ("duration",) if _WHEN.search(folded) else tuple(kind for kind in kinds if kind != "duration")
    spans = [span for span in find_times(question, day) if span.role != "for" and not span.repeats]
    order: Order = "last" if matches["last"] else "first" if matches["first"] else ""
    return TimeQuestion(
        kinds,
        tuple(reading for span in spans for reading in _readings(span, day)),
        "" if any(span.words.lower().startswith(("last", "first")) for span in spans) else order,
        Relation(bool(_BEFORE.match(bound["bound"])), bound["anchor"]) if (bound := matches["relation"]) else None,
        language.split(folded) if {"duration", "ago"}.intersection(kinds) else None,
        tells("asks for what remains", folded),
    )


def _without_rivals(kinds: tuple[Kind, ...], folded: str) -> tuple[Kind, ...]:
    """The kinds without those of words that another use has: "raise in total", "the gap between the two prices"."""
    if "difference" in kinds:
        if tells("adds beside", folded) and not tells("says in total", folded):
            return tuple(kind for kind in kinds if kind not in _OF_AMOUNTS)
        kinds = tuple(kind for kind in kinds if kind not in ("total", "listed"))
    is_other = {"duration", "age"}.intersection(kinds) or tells("asks for an amount", folded)
    if is_other and not tells("asks for a date", folded):
        kinds = tuple(kind for kind in kinds if kind != "when")
    return kinds


def _readings(span: TimeSpan, day: date) -> list[DateRange]:
    """The readings of a time in a question; of one ahead without a year also the one before, for most ask what was."""
    readings = list(span.readings)
    if span.precision in ("day", "month", "season") and not _YEAR.search(span.words):
        readings += [_year_before(reading) for reading in readings if reading.first > day]
    return readings


def _year_before(days: DateRange) -> DateRange:
    return DateRange(*(day.replace(year=day.year - 1, day=min(day.day, 28)) for day in days))


def is_sure(span: TimeSpan) -> bool:
    """Whether a span names days that are known: one reading, no length of time, nothing that recurs."""
    return len(span.readings) == 1 and span.role != "for" and not span.repeats


def stems(text: str) -> frozenset[str]:
    """The words of a text that tell one event from another, by their first letters."""
    return _stems(text, common=_common_words())


def all_stems(text: str) -> frozenset[str]:
    """The words of a text by their first letters."""
    return _stems(text)


def _stems(text: str, common: Set[str] = frozenset()) -> frozenset[str]:
    kin, phrases = _kindred()
    lower = phrases.sub(lambda match: match[0].replace(" ", ""), _POSSESSIVE.sub("", text.lower()))
    words = _WORD.findall(_APOSTROPHES.sub("", lower))
    return frozenset(kin.get(stem := _stem(word), stem) for word in words if word not in common)


@cache
def _kindred() -> tuple[dict[str, str], re.Pattern[str]]:
    """The first stem of the group of each stem that has one, and a pattern of those that are several words."""
    groups = [group.split() for group in _phrases()["en"]["kindred"].split(" | ")]
    phrases = [word.replace("_", " ") for group in groups for word in group if "_" in word]
    kin = {_stem(word.replace("_", "")): _stem(group[0]) for group in groups for word in reversed(group)}
    return kin, re.compile(rf"\b(?:{'|'.join(phrases)})\b")


@lru_cache(maxsize=8192)
def _stem(word: str) -> str:
    """The first letters of a word without the ending of its form: "pinned" is "pin", "moves" and "moved" are "mov"."""
    stem = word
    for ending in ("ing", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            stem = word.removesuffix(ending)
            break
    if len(stem) > 3 and stem[-1] == stem[-2] and word.endswith(("ing", "ed")):
        stem = stem[:-1]
    return stem[:_STEM]


@cache
def _common_words() -> frozenset[str]:
    return frozenset[str]().union(*(language.common for language in _languages()))


def overlaps(ranges: Iterable[DateRange], spans: Iterable[DateRange]) -> bool:
    """Whether any of the ranges shares a day with any of the others."""
    others = list(spans)
    return any(one.first <= other.last and other.first <= one.last for one in ranges for other in others)


# -- words of questions and answers to them


def asking_words(question: str) -> frozenset[str]:
    """The stems of the sentence that asks, for others mostly say why; of all of them where it has few."""
    text = question.partition("?")[0]
    asking = stems(_SENTENCE_END.split(text)[-1])
    return next((words for words in (asking, stems(text)) if len(words) > 1), stems(question))


def counted_nouns(question: str) -> frozenset[str]:
    """The stems of what a question asks the number of ("how many soft rolls"); none for an amount of money."""
    match = _COUNTED.search(question)
    return all_stems(match[1]) if match and not is_currency(match[1].split()[0]) else frozenset()


def listings(question: str) -> list[list[frozenset[str]]]:
    """What a question may list, by the words of each thing: what stands before or behind its "how much", or all.

    "The boots and the tent, how much is that, in all?" lists two things before it; what follows a comma may be none.
    """
    text = question.partition("?")[0]
    cue = _HOW_MUCH.search(text)
    sides = [text[: cue.start()], text[cue.start() :], text] if cue else [text]
    found: list[list[frozenset[str]]] = []
    for side in sides:
        marks = [match[0] for match in _LIST.finditer(side)]
        pieces = [(stems(piece), mark) for piece, mark in zip(_LIST.split(side), ["", *marks], strict=True)]
        pieces = [(words, mark) for words, mark in pieces if words]
        found.append([words for words, _ in pieces])
        if pieces and not pieces[-1][1].isalpha():
            found.append([words for words, _ in pieces[:-1]])
    return [listing for listing in found if len(listing) > 1]
