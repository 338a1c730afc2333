"""The times and amounts of one unit, each with its sentence and the words around it.

Reads a unit alone: knows no question, and no other unit.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter

from localmem.times.amounts import Amount, dimension, find_ages, find_amounts
from localmem.times.cues import find_cue, period_of, tells
from localmem.times.questions import is_sure, stems
from localmem.types import DateRange, TimeSpan, Unit

_SENTENCE_END = re.compile(r"(?<=[.!?…])(?<!\b(?:Mr|Ms|Dr|St)\.)(?<!\bMrs\.)\s+|\n+")
_CLAUSE_END = re.compile(
    r"(?<=[.!?…,;:])(?<!\b(?:Mr|Ms|Dr|St)\.)(?<!\bMrs\.)\s+|\n+|\s(?=(?:and|but|then|und|aber|et|mais)\s)"
)
_HOUR = re.compile(r",? at (1?\d|2[0-4])\b(?![.,]\d)")
_MANY = frozenset({"people", "men", "women", "children", "folk", "sheep", "fish"})  # words of many without an s


@dataclass(frozen=True, slots=True)
class Part:
    """A value with its unit, its sentence, this with the one before it (`nearby`), and the stems of its clause, of what
    is nearby and of the whole unit."""

    unit: Unit
    sentence: str
    nearby: str
    clause: frozenset[str]
    sentences: frozenset[str]
    everything: frozenset[str]

    def count_shared(self, words: Set[str]) -> int:
        """How many words this part shares, those near it counted more than once."""
        own = len(words & stems(self.sentence))
        return 2 * len(words & self.clause) + own + len(words & self.sentences) + len(words & self.everything)


@dataclass(frozen=True, slots=True)
class Event(Part):
    """Days that a unit names surely, by these words."""

    days: DateRange
    precision: str
    words: str
    repeats: str

    @property
    def is_ahead(self) -> bool:
        """Whether it lay ahead when it was told."""
        return self.days.first > self.unit.time.date()


@dataclass(frozen=True, slots=True)
class Figure(Part):
    """An amount that a unit names, whether its clause begins with it, and, if it is the first of several amounts of its
    sentence, the stems before it."""

    amount: Amount
    opens_clause: bool
    leading: frozenset[str]

    def count_shared(self, words: Set[str]) -> int:
        return Part.count_shared(self, words) + len(words & self.leading)

    @property
    def dimension(self) -> str:
        """What the amount measures, "" for a count."""
        return dimension(self.amount.unit)

    @property
    def lead(self) -> str:
        """The words right before it in its sentence."""
        return " ".join(self.sentence.partition(self.amount.words)[0].split()[-6:])

    @property
    def is_count(self) -> bool:
        """Whether it counts several of what its next words name: "120 rolls"."""
        return any(noun in _MANY or (noun.endswith("s") and not noun.endswith("ss")) for noun in self.amount.nouns)

    @property
    def period(self) -> str:
        """The time that it is the price for, as its next words say: "month"; "" for none."""
        return period_of(" ".join(self.sentence.partition(self.amount.words)[2].split(maxsplit=4)[:4]))

    @property
    def is_each(self) -> bool:
        """Whether it is what one of several costs: "42 each", "75 a sheet"."""
        return tells("is for each", self.sentence.partition(self.amount.words)[2])


def split_sentences(text: str) -> list[str]:
    """The sentences of a text."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence]


def length_before(event: Event) -> str:
    """The length of time that an event's sentence counts from it: "four weeks" from last Tuesday; "" for none."""
    match = find_cue("counts a length", event.sentence.partition(event.words)[0])
    return match["length"] if match else ""


def text_between(figure: Figure, other: Figure) -> str:
    """What stands between two amounts of a unit."""
    return figure.unit.text[figure.amount.at : other.amount.at].strip().removeprefix(figure.amount.words)


def events_of(unit: Unit, spans: Iterable[TimeSpan], *, recurring: bool = False) -> Iterator[Event]:
    """The days that spans of a unit name surely, or what they say to recur."""
    place = _Places(unit)
    for span in spans:
        is_meant = bool(span.repeats) == recurring and (recurring or is_sure(span))
        if is_meant and not find_cue("denies a day", unit.text, span.at):
            yield Event(*place.at(span.at), span.readings[0], span.precision, span.words, span.repeats)


def denied_days(unit: Unit, spans: Iterable[TimeSpan]) -> set[DateRange]:
    """The days on which a unit says that something was not, in every reading: "but not on the 12th"."""
    return {days for span in spans if find_cue("denies a day", unit.text, span.at) for days in span.readings}


def ages_of(unit: Unit) -> list[Figure]:
    """The ages that a unit says somebody has."""
    place = _Places(unit)
    return [Figure(*place.at(age.at), age, opens_clause=False, leading=frozenset()) for age in find_ages(unit.text)]


def figures_of(unit: Unit, spans: Sequence[TimeSpan]) -> Iterator[Figure]:
    """The amounts of a unit that stand in none of its spans."""
    place = _Places(unit)
    times = [range(span.at, span.at + len(span.words)) for span in spans]
    hours = {match.start(1) for time in times if (match := _HOUR.match(unit.text, time.stop))}
    amounts = [
        amount
        for amount in find_amounts(unit.text)
        if not any(amount.at in time for time in times) and (amount.unit or amount.at not in hours)
    ]
    for amount in amounts:
        leading = place.leading(amount.at, [other.at for other in amounts if other is not amount])
        yield Figure(*place.at(amount.at, of_amount=True), amount, place.opens_clause(amount.at), leading)


days_of = attrgetter("days")  # by which events are told from each other
_Fields = tuple[Unit, str, str, frozenset[str], frozenset[str], frozenset[str]]


class _Places:
    """The clauses and sentences of a unit's text."""

    def __init__(self, unit: Unit) -> None:
        self._unit, self._text = unit, unit.text
        self._everything = stems(unit.text)
        self._clauses = [0, *(match.end() for match in _CLAUSE_END.finditer(unit.text))]
        self._sentences = [0, *(match.end() for match in _SENTENCE_END.finditer(unit.text))]

    def at(self, at: int, *, of_amount: bool = False) -> _Fields:
        """The fields of the part at this character; an amount that opens a clause or sentence is of two."""
        clause = _within(self._text, self._clauses, at, before=of_amount and at in self._clauses)
        sentence = _within(self._text, self._sentences, at, before=of_amount and at in self._sentences)
        both = _within(self._text, self._sentences, at, before=1)
        return self._unit, sentence, both, stems(clause), stems(both), self._everything

    def leading(self, at: int, others: Sequence[int]) -> frozenset[str]:
        """The stems that stand before the first of several amounts of a sentence, if this is it."""
        start = self._sentences[bisect_right(self._sentences, at) - 1]
        sentence = _within(self._text, self._sentences, at)
        rivals = [other for other in others if start <= other < start + len(sentence)]
        return stems(self._text[start:at]) if rivals and at < min(rivals) else frozenset()

    def opens_clause(self, at: int) -> bool:
        """Whether a clause begins at this character."""
        return at in self._clauses


def _within(text: str, starts: Sequence[int], at: int, before: int = 0) -> str:
    """The piece of the text that holds a character, with as many pieces `before` it."""
    number = bisect_right(starts, at) - 1
    end = starts[number + 1] if number + 1 < len(starts) else len(text)
    return text[starts[max(0, number - before)] : end]
