"""The times and amounts that a question's units offer to be reckoned with, and which of them it is about.

A part is told from its rivals by how relevant its sentence is, where somebody can say so, and else by the words that
its clause, sentence and unit share with the question. Knows no memory system and no model.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TypeVar

from localmem.times.amounts import Amount, dimension, find_amounts, is_currency
from localmem.times.annotate import spans_of
from localmem.times.questions import (
    TimeWish,
    all_stems,
    asks_ahead,
    asks_for_money,
    asks_for_time,
    calls_off,
    counted_nouns,
    expires,
    is_shifted,
    is_state,
    is_sure,
    stems,
)
from localmem.types import DateRange, TimeSpan, Unit

Relevance = Callable[[str, Sequence[str]], Sequence[float]]
"""How relevant each text is to a question, from 0 to 1."""

_SENTENCE_END = re.compile(r"(?<=[.!?…])(?<!\b(?:Mr|Ms|Dr|St)\.)(?<!\bMrs\.)\s+|\n+")
_CLAUSE_END = re.compile(
    r"(?<=[.!?…,;:])(?<!\b(?:Mr|Ms|Dr|St)\.)(?<!\bMrs\.)\s+|\n+|\s(?=(?:and|but|then|und|aber|et|mais)\s)"
)
_SMALL = 10  # a smaller number without a unit is no sum of money

# Chosen on the scenarios of authors a and b, with the shipped reranker.
_RELEVANT = 0.25  # a part whose sentence is less relevant is none that was asked for
_CLEAR = 2.0  # times the relevance of a rival, from which a part is the one that is meant


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
        return 2 * len(words & self.clause) + len(words & self.sentences) + len(words & self.everything)


@dataclass(frozen=True, slots=True)
class Event(Part):
    """Days that a unit names surely, by these words."""

    days: DateRange
    precision: str
    words: str
    repeats: str


@dataclass(frozen=True, slots=True)
class Figure(Part):
    """An amount that a unit names, and whether its clause begins with it."""

    amount: Amount
    opens_clause: bool

    @property
    def dimension(self) -> str:
        """What the amount measures, "" for a count."""
        return dimension(self.amount.unit)


AnyPart = TypeVar("AnyPart", Event, Figure)


class Parts:
    """A question of a day, what it asks, and the parts of its units, the best unit first."""

    def __init__(
        self, question: str, day: date, wish: TimeWish, units: Sequence[Unit], relevance: Relevance | None
    ) -> None:
        self.question, self.day, self.wish = question, day, wish
        self.words = stems(question)
        self._nouns = counted_nouns(question)
        self._units = units
        self._relevance = relevance
        self._scores: dict[type[Part], dict[str, float]] = {}

    @cached_property
    def events(self) -> list[Event]:
        """The days that the units name surely."""
        return [event for unit in self._units for event in _events(unit, spans_of(unit))]

    @cached_property
    def figures(self) -> list[Figure]:
        """The amounts that the units name and that answer to the question, or may."""
        figures = [figure for unit in self._units for figure in _figures(unit, spans_of(unit))]
        return [figure for figure in figures if self.fit(figure)]

    @cached_property
    def habits(self) -> list[Event]:
        """What the units say to recur."""
        return [event for unit in self._units for event in _events(unit, spans_of(unit), recurring=True)]

    @property
    def sentences(self) -> list[tuple[Unit, str]]:
        """The sentences of the units."""
        return [(unit, sentence) for unit in self._units for sentence in _SENTENCE_END.split(unit.text) if sentence]

    @property
    def days(self) -> list[Event]:
        """The events of a single day."""
        return [event for event in self.events if event.precision == "day" and event.days.first == event.days.last]

    @property
    def years(self) -> list[Event]:
        """The events of a month, season or year, in one year."""
        coarse = [event for event in self.events if event.precision in ("month", "season", "year")]
        return [event for event in coarse if event.days.first.year == event.days.last.year]

    @property
    def in_months(self) -> bool:
        """Whether a length of time is asked for in months."""
        return "month" in self._nouns

    @property
    def lists_more(self) -> bool:
        """Whether the question lists more than two things."""
        return self.question.count(",") > 1

    # -- choosing

    def _score(self, part: Part) -> float:
        """The relevance of a part's sentence, 0 where nobody can say."""
        if not self._relevance:
            return 0.0
        if type(part) not in self._scores:
            parts: Sequence[Part] = [*self.events, *self.habits] if isinstance(part, Event) else self.figures
            sentences = list(dict.fromkeys(other.sentence for other in parts))
            scores = self._relevance(self.question, sentences)
            blind = len(sentences) > 1 and min(scores) == max(scores)  # it does not know the language, for example
            self._scores[type(part)] = (
                dict.fromkeys(sentences, 0.0) if blind else dict(zip(sentences, scores, strict=True))
            )
        return self._scores[type(part)][part.sentence]

    def is_relevant(self, part: Part) -> bool:
        """Whether a part may be meant, as far as anybody can say."""
        return not self._relevance or self._score(part) >= _RELEVANT

    def leads(self, part: Part, rival: Part, words: Set[str]) -> bool:
        """Whether it is clear that a part is meant and not its rival."""
        if not self._relevance or part.sentence == rival.sentence:
            return part.count_shared(words) > rival.count_shared(words)
        return self._score(part) >= _CLEAR * self._score(rival)

    def rank(self, parts: Sequence[AnyPart], words: Set[str], same: Callable[[AnyPart], Hashable]) -> list[AnyPart]:
        """The relevant parts, one for each value, the likeliest first."""
        order = sorted(parts, key=lambda part: (-self._score(part), -part.count_shared(words)))
        distinct: dict[Hashable, AnyPart] = {}
        for part in order:
            if self.is_relevant(part):
                distinct.setdefault(same(part), part)
        return list(distinct.values())

    def clearest(
        self, parts: Sequence[AnyPart], same: Callable[[AnyPart], Hashable], words: Set[str] | None = None
    ) -> AnyPart | None:
        """The part that the question's words are about, or these; None if another may be meant."""
        words = self.words if words is None else words
        ranked = self.rank(parts, words, same)
        return ranked[0] if ranked and all(self.leads(ranked[0], rival, words) for rival in ranked[1:]) else None

    # -- events

    @property
    def is_off(self) -> bool:
        """Whether a unit that the question may be about calls something off."""
        return any(calls_off(unit.text) and stems(unit.text) & self.words for unit in self._units)

    def is_about(self, event: Event) -> bool:
        """Whether the question is about an event's unit: it is the best, or near it are words of the question and no
        unit has more of them."""
        if self._relevance or len(self._units) == 1:
            return event.unit.id == self._units[0].id
        shared = len(self.words & event.everything)
        return bool(self.words & event.sentences) and all(
            shared >= len(self.words & stems(unit.text)) for unit in self._units
        )

    def expected_events(self, events: Sequence[Event]) -> list[Event]:
        """The events that may be meant: of something to come those ahead of their telling, of an end those that say so,
        and none whose sentence counts on from them."""
        ahead, ends = asks_ahead(self.question), expires(self.question)
        return [
            event
            for event in events
            if not (ahead and event.days.first <= event.unit.time.date())
            and not (ends and not expires(event.sentence))
            and not is_shifted(event.nearby.replace(event.words, ""))
        ]

    def may_have_moved(self, event: Event, others: Sequence[Event] = ()) -> bool:
        """Whether a later unit may name another day for the same: it shares a word of the question with the event."""
        words = self.words & event.sentences
        return any(
            later.unit.time > event.unit.time and words & later.sentences
            for later in self.days
            if later.days not in {event.days, *(other.days for other in others)}
        )

    # -- amounts

    def fit(self, figure: Figure) -> int:
        """How well an amount answers to what is asked for: 2 by its noun or unit, 1 where it may, 0 where not."""
        amount = figure.amount
        nouns = all_stems(" ".join((*amount.nouns, amount.unit)))
        if self._nouns:
            may_fit = nouns & self.words if nouns else not asks_for_time(self.question)
            return 2 if nouns & self._nouns else 1 if may_fit else 0
        if is_currency(amount.unit):
            return 2 if asks_for_money(self.question) else 1
        return 0 if nouns or amount.unit or amount.value < _SMALL else 1

    def figure_of(self, figures: Sequence[Figure]) -> Figure | None:
        """The amount of one unit that is asked for, if that is clear."""
        most = max(map(self.fit, figures))
        best = self.clearest([figure for figure in figures if self.fit(figure) == most], lambda figure: figure.amount)
        if best is None or self.has_other_price(best):
            return None
        rivals = [figure for figure in figures if self.fit(figure) < most]
        is_led = any(self.leads(rival, best, self.words) for rival in rivals)
        return None if is_led or (rivals and not best.count_shared(self.words)) else best

    def has_other_price(self, figure: Figure) -> bool:
        """Whether another amount follows in its sentence with nothing before it: "9,800 here, 8,900 in town"."""
        return any(
            other.sentence == figure.sentence and other.amount.at > figure.amount.at and other.opens_clause
            for other in self.figures
        )

    def is_settled(self, figures: Sequence[Figure]) -> bool:
        """Whether what remains is the difference of these: there is no third amount, or the later of them says how
        things stand, and is no further step."""
        others = [figure for figure in self.figures if figure not in figures]
        return not others or is_state(max(figures, key=lambda figure: figure.unit.time).sentence)


# -- reading a unit


def _events(unit: Unit, spans: Sequence[TimeSpan], *, recurring: bool = False) -> Iterator[Event]:
    place = _Places(unit)
    for span in spans:
        if bool(span.repeats) == recurring and (recurring or is_sure(span)):
            yield Event(*place.at(span.at), span.readings[0], span.precision, span.words, span.repeats)


def _figures(unit: Unit, spans: Sequence[TimeSpan]) -> Iterator[Figure]:
    times = [range(span.at, span.at + len(span.words)) for span in spans]
    place = _Places(unit)
    for amount in find_amounts(unit.text):
        if not any(amount.at in time for time in times):
            yield Figure(*place.at(amount.at), amount, place.opens_clause(amount))


class _Places:
    """The clauses and sentences of a unit's text."""

    def __init__(self, unit: Unit) -> None:
        self._unit, self._text = unit, unit.text
        self._everything = stems(unit.text)
        self._clauses = [0, *(match.end() for match in _CLAUSE_END.finditer(unit.text))]
        self._sentences = [0, *(match.end() for match in _SENTENCE_END.finditer(unit.text))]

    def at(self, at: int) -> tuple[Unit, str, str, frozenset[str], frozenset[str], frozenset[str]]:
        """The fields of the part at this character."""
        clause, sentence = _within(self._text, self._clauses, at), _within(self._text, self._sentences, at)
        both = _within(self._text, self._sentences, at, before=1)
        return self._unit, sentence, both, stems(clause), stems(both), self._everything

    def opens_clause(self, amount: Amount) -> bool:
        """Whether a clause begins with the amount."""
        return self._text.index(amount.words, amount.at) in self._clauses


def _within(text: str, starts: Sequence[int], at: int, before: int = 0) -> str:
    """The piece of the text that holds a character, with as many pieces `before` it."""
    number = bisect_right(starts, at) - 1
    end = starts[number + 1] if number + 1 < len(starts) else len(text)
    return text[starts[max(0, number - before)] : end]
