"""What a question asks about time and amounts: the kind of answer, the times that it speaks of, the order it asks for.

Decided by words, from the phrases of questions.yaml. Knows no memory: what fits a wish is for the caller to prefer.
"""

import re
from collections.abc import Iterable, Set
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from localmem.files import read_yaml
from localmem.times.amounts import is_currency
from localmem.times.resolver import find_times
from localmem.types import DateRange, TimeSpan

Kind = Literal["order", "often", "times", "age", "ago", "total", "difference", "listed", "duration", "when"]
Order = Literal["", "first", "last"]

_KINDS: tuple[Kind, ...] = get_args(Kind)  # likeliest first
_OF_AMOUNTS = ("total", "difference", "listed")
_APOSTROPHES = re.compile(r"['’‘`´]")
_WORD = re.compile(r"[^\W\d_]{3,}")
_STEM = 5  # characters by which words are compared, so that "operate" is "operation"
_CLOSED = re.compile(r"(?:did|do|does|is|are|was|were|have|has|can|could|will|would) ")  # opens a yes-or-no question
_COUNTED = re.compile(r"\bhow many (?:more )?(\w+(?:\s\w+){0,2})", re.IGNORECASE)
_TIMES_COUNTED = re.compile(r"\bhow many (?:more )?(?:days|weeks|months|years)\b", re.IGNORECASE)
_MONEY = re.compile(
    r"\b(?:how much|costs?|sav(?:e|ed|ing)s?|pay\w*|paid|spen[dt]\w*|prices?|bills?|fees?|money|charges?"
    r"|ow(?:e|es|ed|ing)|earn\w*|s[eo]ld|selling|b(?:uy|uying|ought)|dollars?|bucks|pounds?|quid|euros?|cash|grant|fund)\b",
    re.IGNORECASE,
)
_ALTERNATIVES = re.compile(
    r"(?:^|[,:]|\b(?:first|last|earlier|later|recently)\b)\s*(?P<a>[^,:?]+?),? or (?P<b>[^?]+)", re.IGNORECASE
)
_WHEN = re.compile(r"\bwhen (?:i|we|my|our)\b")
_CALLED_OFF = re.compile(r"\b(?:cancel\w*|call\w* (?:it|them|that) off|called off|no longer)\b", re.IGNORECASE)
_EXPIRES = re.compile(r"\b(?:expir\w*|runs? out|valid|un?til+ when|renew\w*|last day|does \w+ end)\b", re.IGNORECASE)
_AHEAD = re.compile(
    r"\b(?:can|will|shall|must|should|do (?:i|we)|does|a(?:m i|re we)|(?:have|need) to|due|comes?|goes|arrives?)\b",
    re.IGNORECASE,
)
_BACK = re.compile(r"\b(?:did|was|were|had|came|went)\b", re.IGNORECASE)
_SHIFTED = re.compile(
    r"\b(?:(?:days?|weeks?|weekend|months?|fortnight|\w+day) (?:before|after|later|earlier|following|from)"
    r"|from (?:that|then))\b",
    re.IGNORECASE,
)
_STATE = re.compile(
    r"\b(?:(?:is|are|am|was|stands?|now|up|down) (?:now )?(?:at|to)|so far|in all|have)\b", re.IGNORECASE
)
_REMAINS = re.compile(r"\b(?:still|remain\w*|how (?:much|many) more|to go|whole goal|short of)\b", re.IGNORECASE)
_LIST = re.compile(r"[,;:?!.–]|\b(?:and|plus|with)\b", re.IGNORECASE)
_COUNTS = re.compile(r"\b(?:two|three|four|five|six|pair|couple|each|both of|\d+) \w", re.IGNORECASE)
_YEAR = re.compile(r"\d{4}|next|tomorrow")
_BEFORE = re.compile("before|un?till?|vor|bis|bevor|avant|jusqu")


class Relation(NamedTuple):
    """Before or after an event, by the event's words."""

    before: bool
    anchor: str


class TimeWish(NamedTuple):
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
            if name not in ("common", "split")
        }

    def split(self, question: str) -> tuple[str, str] | None:
        """The words of two events, the earlier first where the question tells."""
        matches = (pattern.search(question) for pattern in self.splits)
        return next(((match["a"], match["b"]) for match in matches if match), None)

    def knows(self, words: Iterable[str]) -> int:
        """How many of the words are frequent ones of this language."""
        return sum(word in self.common for word in words)


@cache
def _languages() -> list[_Language]:
    table: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
    return [_Language(phrases) for phrases in table.values()]


def _language(folded: str) -> _Language:
    words = folded.split()
    return max(_languages(), key=lambda language: language.knows(words))


def read_question(question: str, day: date) -> TimeWish:
    """What a question of this day asks about time and amounts."""
    folded = _APOSTROPHES.sub("", question.lower())
    language = _language(folded)
    matches = {name: pattern.search(folded) for name, pattern in language.patterns.items()}
    is_closed = _CLOSED.match(folded) is not None
    kinds = tuple(kind for kind in _KINDS if matches.get(kind) and not (is_closed and kind in _OF_AMOUNTS))
    if "listed" in kinds and not asks_for_money(question):
        kinds = tuple(kind for kind in kinds if kind != "listed")
    if "ago" in kinds:  # "how many days ago did I order it when it came" asks for a length of time between two events
        kinds = ("duration",) if _WHEN.search(folded) else tuple(kind for kind in kinds if kind != "duration")
    spans = [span for span in find_times(question, day) if span.role != "for" and not span.repeats]
    order: Order = "last" if matches["last"] else "first" if matches["first"] else ""
    return TimeWish(
        kinds,
        tuple(reading for span in spans for reading in _readings(span, day)),
        "" if any(span.words.lower().startswith(("last", "first")) for span in spans) else order,
        Relation(bool(_BEFORE.match(bound["bound"])), bound["anchor"]) if (bound := matches["relation"]) else None,
        language.split(folded) if {"duration", "ago"}.intersection(kinds) else None,
        _REMAINS.search(folded) is not None,
    )


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
    words = _WORD.findall(_APOSTROPHES.sub("", text.lower()))
    return frozenset(word[:_STEM] for word in words if word not in common)


@cache
def _common_words() -> frozenset[str]:
    return frozenset[str]().union(*(language.common for language in _languages()))


def overlaps(ranges: Iterable[DateRange], spans: Iterable[DateRange], slack: timedelta = timedelta(0)) -> bool:
    """Whether any of the ranges shares a day with any of the others, or comes as near as `slack`."""
    others = list(spans)
    return any(
        one.first - slack <= other.last and other.first - slack <= one.last for one in ranges for other in others
    )


# -- words of questions and answers to them


def counted_nouns(question: str) -> frozenset[str]:
    """The stems of what a question asks the number of ("how many soft rolls"); none for an amount of money."""
    match = _COUNTED.search(question)
    return all_stems(match[1]) if match and not is_currency(match[1].split()[0]) else frozenset()


def listed_things(question: str) -> list[frozenset[str]]:
    """The words of each thing that a question may list: "the boots, a tent and the lamp"."""
    words = [stems(piece) for piece in _LIST.split(question)]
    return [own for own in words if own]


def counts_things(question: str) -> bool:
    """Whether a question counts what it asks the price of: "two collars and a bracelet"."""
    return _COUNTS.search(question) is not None


def asks_for_time(question: str) -> bool:
    """Whether what a question asks the number of are days, weeks, months or years."""
    return _TIMES_COUNTED.search(question) is not None


def asks_for_money(question: str) -> bool:
    """Whether a question is about money."""
    return _MONEY.search(question) is not None


def alternatives(question: str) -> tuple[str, str] | None:
    """The two things of which a question asks which came first."""
    match = _ALTERNATIVES.search(question)
    return (match["a"].strip(" '\""), match["b"].strip(" '\"")) if match else None


def calls_off(text: str) -> bool:
    """Whether a text says that something does not take place."""
    return _CALLED_OFF.search(text) is not None


def expires(text: str) -> bool:
    """Whether a text is about the end of something, or asks for it."""
    return _EXPIRES.search(text) is not None


def asks_ahead(question: str) -> bool:
    """Whether a question asks for what is still to come."""
    return _AHEAD.search(question) is not None and _BACK.search(question) is None


def is_shifted(text: str) -> bool:
    """Whether a text counts from a day that it names, so that another day is meant: "the week after the 20th"."""
    return _SHIFTED.search(text) is not None


def is_state(text: str) -> bool:
    """Whether an amount in a text says how things stand, and is no step on the way there."""
    return _STATE.search(text) is not None
