"""The times and amounts that a question's units offer to be reckoned with, and which of them it is about.

A part is told from its rivals by how relevant its sentence is, where somebody can say so, and else by the words that
its clause, sentence and unit share with the question. Knows no memory system and no model.
"""

import re
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import replace
from datetime import date
from functools import cached_property
from itertools import chain
from typing import TypeVar

from localmem.times import unit_parts
from localmem.times.amounts import has_spoken_price, is_currency
from localmem.times.annotate import spans_of
from localmem.times.cues import asks_ahead, asks_back, find_cue, tells
from localmem.times.questions import TimeQuestion, all_stems, asking_words, counted_nouns, listings, overlaps, stems
from localmem.times.unit_parts import Event, Figure, Part, events_of, text_between
from localmem.types import DateRange, TimeSpan, Unit

Relevance = Callable[[str, Sequence[str]], Sequence[float]]
"""How relevant each text is to a question, from 0 to 1."""

_MOST_OF_A_YEAR = 300  # days
_SMALL = 10  # a smaller number without a unit is no sum of money

# Chosen on the scenarios of authors a and b, with the shipped reranker.
_RELEVANT = 0.25  # a part whose sentence is less relevant is none that was asked for
SURE = 0.5  # a day whose sentence is as relevant need share no word with the question
_CLEAR = 2.0  # times the relevance of a rival, from which a part is the one that is meant


AnyPart = TypeVar("AnyPart", Event, Figure)


class Parts:
    """A question of a day, what it asks, and the parts of its units, the best unit first."""

    def __init__(
        self, question: str, day: date, wish: TimeQuestion, units: Sequence[Unit], relevance: Relevance | None
    ) -> None:
        self.question, self.day, self.wish = question, day, wish
        self.words = asking_words(question)
        self._nouns = counted_nouns(question)
        self.is_back = asks_back(question)
        self._units = units
        self._relevance = relevance
        self._scores: dict[type[Part], dict[str, float]] = {}

    @cached_property
    def events(self) -> list[Event]:
        """The days that the units name surely, or by the tense of the question."""
        return [event for unit in self._units for event in events_of(unit, map(self._settle, spans_of(unit)))]

    def _settle(self, span: TimeSpan) -> TimeSpan:
        """The span with the readings up to the day of a question, where this asks for what took place."""
        past = [reading for reading in span.readings if reading.first <= self.day]
        return replace(span, readings=tuple(past)) if past and len(past) < len(span.readings) and self.is_back else span

    @cached_property
    def figures(self) -> list[Figure]:
        """The amounts that the units name and that answer to the question, or may: of a chosen unit its only one."""
        by_unit = [list(unit_parts.figures_of(unit, spans_of(unit))) for unit in self._units]
        may_be_other = self.is_chosen and not self._nouns and "duration" not in self.wish.kinds
        may_fit = [figures if may_be_other and len(figures) == 1 else filter(self.fit, figures) for figures in by_unit]
        return list(chain.from_iterable(may_fit))

    @cached_property
    def ages(self) -> list[Figure]:
        """The ages that the units say somebody has, where one is asked for."""
        return [age for unit in self._units for age in unit_parts.ages_of(unit)] if "age" in self.wish.kinds else []

    @cached_property
    def habits(self) -> list[Event]:
        """What the units say to recur."""
        return [event for unit in self._units for event in events_of(unit, spans_of(unit), recurring=True)]

    @property
    def sentences(self) -> list[tuple[Unit, str]]:
        """The sentences of the units."""
        return [(unit, sentence) for unit in self._units for sentence in unit_parts.split_sentences(unit.text)]

    def only_place(self, cue: str) -> tuple[Unit, str, re.Match[str]] | None:
        """The only sentence that tells this, with its unit, and where it does."""
        places = [(unit, sentence, match) for unit, sentence in self.sentences if (match := find_cue(cue, sentence))]
        return places[0] if len(places) == 1 else None

    @cached_property
    def days(self) -> list[Event]:
        """The events of a single day, without the holidays of which a unit with other days speaks in passing."""
        days = [event for event in self.events if event.precision == "day" and event.days.first == event.days.last]
        words = self.words if not tells("names a holiday", self.question) else frozenset[str]()
        passing = [event for event in days if words and tells("is a holiday", event.words) and not words & event.clause]
        dated = {event.unit.id for event in days if event not in passing}
        return [event for event in days if event not in passing or event.unit.id not in dated]

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
        lists = listings(self.question)
        return bool(lists) and all(len(things) > 2 for things in lists)

    # -- choosing

    def score(self, part: Part) -> float:
        """The relevance of a part's sentence, 0 where nobody can say."""
        if not self._relevance:
            return 0.0
        if type(part) not in self._scores:
            is_event = isinstance(part, Event)
            parts: list[Event] | list[Figure] = self.events + self.habits if is_event else self.figures + self.ages
            sentences = list(dict.fromkeys(other.sentence for other in parts))
            scores = self._relevance(self.question, sentences)
            blind = len(sentences) > 1 and min(scores) == max(scores)  # it does not know the language, for example
            self._scores[type(part)] = (
                dict.fromkeys(sentences, 0.0) if blind else dict(zip(sentences, scores, strict=True))
            )
        return self._scores[type(part)][part.sentence]

    def is_relevant(self, part: Part) -> bool:
        """Whether a part may be meant, as far as anybody can say."""
        return not self._relevance or self.score(part) >= _RELEVANT

    def is_tied(self, part: Part) -> bool:
        """Whether a part shares a word with the question; of evidence that was chosen by hand it need not.

        Relevance alone takes the nearest of many for what is asked, whether or not this is among them.
        """
        is_clear = isinstance(part, Event) and self.score(part) >= SURE
        is_aside = isinstance(part, Event) and part.days.first == part.unit.time.date()  # "this morning" is often said
        near = part.clause if is_aside else part.everything
        return not self._relevance or (is_clear and not is_aside) or not self.words.isdisjoint(near)

    def leads(self, part: Part, rival: Part, words: Set[str]) -> bool:
        """Whether it is clear that a part is meant and not its rival."""
        if not self._relevance or part.sentence == rival.sentence:
            return part.count_shared(words) > rival.count_shared(words)
        return self.score(part) >= _CLEAR * self.score(rival)

    def rank(self, parts: Sequence[AnyPart], words: Set[str], same: Callable[[AnyPart], Hashable]) -> list[AnyPart]:
        """The relevant parts, one for each value, the likeliest first."""
        order = sorted(parts, key=lambda part: (-self.score(part), -part.count_shared(words)))
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
        return any(tells("is called off", unit.text) and stems(unit.text) & self.words for unit in self._units)

    @property
    def is_chosen(self) -> bool:
        """Whether somebody chose the units, so that the question is about them."""
        return not self._relevance

    @property
    def is_alone(self) -> bool:
        """Whether there is one unit, which somebody chose."""
        return self.is_chosen and len(self._units) == 1

    def is_about(self, event: Event) -> bool:
        """Whether the question is about an event's unit: it is the best, or near it are words of the question and no
        unit has more of them."""
        if self._relevance or len(self._units) == 1:
            return event.unit.id == self._units[0].id
        shared = len(self.words & event.everything)
        return bool(self.words & stems(event.sentence)) and all(
            shared >= len(self.words & stems(unit.text)) for unit in self._units
        )

    def expected_events(self, events: Sequence[Event]) -> list[Event]:
        """The events that may be meant: of something to come those ahead of their telling, of how it ended none of
        them, of a year that is named those in it, of an end those that say so, none whose sentence counts on from them.
        """
        is_plan, ends = tells("asks for a plan", self.question), tells("is about an end", self.question)
        ahead, is_over = asks_ahead(self.question) or is_plan, tells("asks how it ended", self.question) and not is_plan
        years = [days for days in self.wish.ranges if (days.last - days.first).days > _MOST_OF_A_YEAR]
        return [
            event
            for event in events
            if not (ahead and event.days.first <= event.unit.time.date())
            and not (is_over and event.is_ahead)
            and (not years or overlaps(years, [event.days]))
            and not (self.is_back and event.days.first > self.day)
            and not tells("is of another day", event.sentence.partition(event.words)[2])
            and not (ends and not tells("is about an end", event.sentence))
            and not tells("is counted on", event.nearby.replace(event.words, ""))
        ]

    def may_be_elsewhere(self, event: Event) -> bool:
        """Whether another sentence has more words of the question, and a time that is not resolved: "that Saturday"."""
        if self._relevance and any(
            other.unit.id == event.unit.id and self.words & other.clause - stems(event.sentence)
            for other in self.events
        ):
            return True
        shared, ahead = len(self.words & event.clause), tells("asks for a plan", self.question)
        is_loose = not self.words & event.sentences
        return any(
            _says_time(
                re.sub(rf"{event.days.first:%A}(?! after)", "", self._without_times(sentence, event.days)), ahead=ahead
            )
            and (is_loose or (sentence != event.sentence.strip() and len(self.words & stems(sentence)) > shared))
            for unit, sentence in self.sentences
            if unit.id == event.unit.id
        )

    def _without_times(self, sentence: str, days: DateRange) -> str:
        """A sentence without what is resolved, and what may mean these days."""
        same = {span.words for unit in self._units for span in spans_of(unit) if days in span.readings}
        resolved = {event.words for event in (*self.events, *self.habits)}
        for words in sorted(same | resolved, key=len, reverse=True):
            sentence = sentence.replace(words, "")
        return sentence

    def may_have_moved(self, event: Event, others: Sequence[Event] = ()) -> bool:
        """Whether a later unit takes the day back, or may name another: it shares a word of the question with it."""
        words = self.words & event.sentences
        later = [unit for unit in self._units if unit.time > event.unit.time]
        if any(event.days in unit_parts.denied_days(unit, spans_of(unit)) for unit in later):
            return True
        return any(
            other.unit in later and words & other.sentences and self.is_relevant(other)
            for other in self.days
            if other.days not in {event.days, *(other.days for other in others)}
        )

    # -- amounts

    def fit(self, figure: Figure) -> int:
        """How well an amount answers to what is asked for: 2 by its noun or unit, 1 where it may, 0 where not."""
        amount = figure.amount
        nouns = all_stems(" ".join((*amount.nouns, amount.unit)))
        if self._nouns:
            may_fit = nouns & self.words if nouns else not tells("asks for a number of times", self.question)
            return 2 if nouns & self._nouns else 1 if may_fit else 0
        if amount.unit and not is_currency(amount.unit) and tells("asks for a measure", self.question):
            return 2
        if is_currency(amount.unit):
            return 2 if tells("asks for money", self.question) else 1
        return 0 if figure.is_count or amount.unit or amount.value < _SMALL else 1

    def fittest(self, figures: Sequence[Figure]) -> list[Figure]:
        """The amounts that answer best to what is asked for."""
        most = max(map(self.fit, figures), default=0)
        return [figure for figure in figures if self.fit(figure) == most]

    def figure_of(self, figures: Sequence[Figure]) -> Figure | None:
        """The amount of one unit that is asked for, if that is clear."""
        fittest = self.fittest(figures)
        best = self.clearest(fittest, lambda figure: figure.amount.value)
        if best is None or self.has_other_price(best) or has_spoken_price(best.unit.text):
            return None
        rivals = [figure for figure in figures if figure not in fittest]
        is_led = any(self.leads(rival, best, self.words) for rival in rivals)
        others = [
            figure
            for figure in self.figures
            if figure.unit.id == best.unit.id and figure.amount.value != best.amount.value
        ]
        is_contested = any((self.words & other.clause) - stems(best.sentence) for other in others)
        return None if is_led or is_contested or (rivals and not best.count_shared(self.words)) else best

    def may_be(self, figure: Figure, words: Set[str]) -> bool:
        """Whether words stand near an amount, or anywhere in a unit that names no other."""
        return bool(words & (figure.everything if self._is_only(figure) else figure.sentences))

    def _is_only(self, figure: Figure) -> bool:
        return sum(other.unit.id == figure.unit.id for other in self.figures) == 1

    def is_named(self, figure: Figure) -> bool:
        """Whether words of the question stand near an amount, or it is the only one of its unit."""
        return self._is_only(figure) or not self.words.isdisjoint(figure.sentences)

    def has_other_price(self, figure: Figure) -> bool:
        """Whether another amount follows in its sentence with nothing before it, or changes it, or it is shared: "9,800
        here, 8,900 in town", "£7,850 less £300", "110 and we divide by two"."""
        return tells("is shared", figure.sentence.partition(figure.amount.words)[2]) or any(
            other.opens_clause or tells("changes an amount", text_between(figure, other))
            for other in self.figures
            if other.sentence == figure.sentence and other.amount.at > figure.amount.at
        )

    def is_settled(self, figures: Sequence[Figure]) -> bool:
        """Whether what remains is the difference of these: there is no third amount, or the later of them says how
        things stand, and is no further step."""
        others = [figure for figure in self.figures if figure not in figures]
        return not others or tells("says a state", max(figures, key=lambda figure: figure.unit.time).sentence)


def _says_time(text: str, *, ahead: bool) -> bool:
    """Whether words of a text may say a time, whether or not it can be resolved; of a plan also a length of time."""
    return tells("says a time", text) or (ahead and tells("says a length", text))
