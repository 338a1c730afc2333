"""What a rule of English times sees: the words it matched, the day, the tense, and the times named before."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from typing import NamedTuple

from localmem.times.days import one_day
from localmem.times.english_tense import Tense, find_earlier_tense, find_tense, is_moved, verbs_of
from localmem.times.english_words import Word, words_beside
from localmem.types import DateRange, Precision, TimeRole, TimeSpan

SOON = 240  # days within which a date of the year without a verb is the coming one
_LONG = 300  # days within which a date in the present tense is the coming one
# Days to what is near, where no verb tells and where one does, and to what is far.
_JUST_NOW, _NEAR, _FAR = 31, 120, 240
_PLAN = 4  # words before a time of which one may say that it is ahead: "my upcoming meeting on the 17th"
_BEHIND = 6  # words behind a time that may name its year
_JUST_OVER = 14  # days since what a present verb may still be said of: "is off Good Friday", on the day after
# A verb settles nothing against what is much nearer: days to what is past, and of a day of the month to what is near.
_REMOTE, _MONTH, _SOON_AGAIN, _JUST_GONE = 120, 40, 10, 7
_SURELY_PAST, _CLAUSE = {"did", "didn't", "didnt", "since"}, 7  # words of which one so close leaves no doubt


class Reading(NamedTuple):
    """What a rule makes of its words; the parts are those of `TimeSpan`."""

    ranges: tuple[DateRange, ...]
    precision: Precision
    repeats: str = ""
    role: TimeRole | None = None


def reading_of(ranges: Sequence[DateRange], precision: Precision) -> Reading | None:
    """The reading of some ranges; None where there are none."""
    return Reading(tuple(ranges), precision) if ranges else None


def reading_of_day(day: date) -> Reading:
    """The reading of one day."""
    return Reading((one_day(day),), "day")


@dataclass(frozen=True)
class Scene:
    """Words `start` to `end` of a text, to be resolved by a day.

    `role` is what the word before them says, `named` are the times named in earlier texts and `same_text` those of
    this one, oldest first, `day_first` whether 9/11 is the ninth of November.
    """

    words: Sequence[Word]
    start: int
    end: int
    day: date
    role: TimeRole
    named: Sequence[TimeSpan]
    same_text: Sequence[TimeSpan]
    day_first: bool | None

    @property
    def phrase(self) -> Sequence[Word]:
        """The words that the rule matched."""
        return self.words[self.start : self.end]

    @cached_property
    def verb(self) -> tuple[Tense, bool]:
        """What `find_tense` says of the words."""
        return find_tense(self.words, self.start, self.end)

    @cached_property
    def tense(self) -> Tense:
        """The tense of the verb nearest to the words; "since" is past whatever the verb, "until" seldom is."""
        if self.role == "since":
            return "past"
        if any(word.text == "upcoming" for word in self.words[max(0, self.start - _PLAN) : self.start]):
            return "future"
        tense, _ = self.verb
        if tense == "none" and find_earlier_tense(self.words, self.start) == "future":
            return "future"
        if (
            self.before == "from" and tense == "past" and not (self.is_remote or self._is_of_paper)
        ):  # "she has one lined up from June"
            return "unclear"
        return "future" if self.role == "until" and tense in ("present", "unclear") else tense

    def with_tense(self, tense: Tense) -> "Scene":
        """The same words in another tense."""
        scene = replace(self)
        scene.__dict__["tense"] = tense
        return scene

    @property
    def before(self) -> str:
        """The word before the match, small, or the sign; "" at the start of a text."""
        word = self.words[self.start - 1] if self.start else None
        return "" if word is None else word.kind if word.kind in ".,-/" else word.text

    @property
    def after(self) -> Word | None:
        """The word or sign behind the match."""
        return self.words[self.end] if self.end < len(self.words) else None

    def has(self, *names: str) -> bool:
        """Whether a word of one of these names was matched."""
        return any(word.name in names or word.text in names for word in self.phrase)

    def all(self, *groups: str) -> list[Word]:
        """The matched words of these classes."""
        return [word for word in self.phrase if word.group in groups]

    def value(self, group: str) -> int:
        """The number of the first matched word of a class."""
        return self.all(group)[0].value

    def value_or_none(self, group: str) -> int | None:
        """The number of the first matched word of a class; None where there is none."""
        return next((word.value for word in self.all(group)), None)

    @property
    def unit(self) -> str:
        """The unit that is named, "day" where none is."""
        return next((word.name for word in self.all("UNIT")), "day")

    @property
    def count(self) -> int:
        """How many: "twenty two", "3"; 1 for "a" or nothing."""
        return sum(word.value for word in self.all("TENS", "COUNT", "SMALL", "LARGE")) or 1

    @property
    def _is_of_paper(self) -> bool:
        return self.start > 1 and self.words[self.start - 2].text in verbs_of("papers")

    @property
    def shift(self) -> int:
        """What the first "last", "this" or "next" adds."""
        return self.all("LAST", "THIS", "NEXT")[0].value

    @property
    def is_remote(self) -> bool:
        """Whether the sentence tells of another year: "when I was 12", "in 1988"."""
        start, end = self.start, self.end
        while start and self.words[start - 1].kind != ".":
            start -= 1
        while end < len(self.words) and self.words[end].kind != ".":
            end += 1
        around = [*self.words[start : self.start], *self.words[self.end : end]]
        texts = [word.text for word in around]
        childish = any(
            text in words_beside("childhood") and texts[max(0, index - 1) : index] != ["the"]
            for index, text in enumerate(texts)
        )
        return childish or any(
            word.group == "YEAR" or (word.text == "when" and texts[index + 2 : index + 3] in (["was"], ["were"]))
            for index, word in enumerate(around)
        )

    @property
    def day_of_month(self) -> int:
        """The number that the matched words give to a day: "twenty-first", "21st", "21"."""
        return sum(word.value for word in self.all("TENS", "ORDINAL", "SMALL"))

    @property
    def year(self) -> int | None:
        """The year that is named: "1974", "last year"; None where there is none."""
        if (year := self.value_or_none("YEAR")) is not None:
            return year
        if self.has("ago"):
            return self.day.year - self.count
        shifts = self.all("LAST", "THIS", "NEXT")
        if shifts:
            return self.day.year + shifts[-1].value if self.has("year") else None
        return self._year_behind

    @property
    def _year_behind(self) -> int | None:
        """The year that the clause names later: "Easter is late this year"."""
        for index in range(self.end, min(self.end + _BEHIND, len(self.words) - 1)):
            word, following = self.words[index : index + 2]
            if word.kind in ".,-/" or word.group == "YEAR" or word.text in verbs_of("joins"):
                return None
            if word.group in ("LAST", "THIS", "NEXT") and following.name == "year":
                return self.day.year + word.value
        return None

    def last_weekday(self, weekday: int) -> date:
        """The latest such weekday before the day."""
        return self.day - timedelta((self.day.weekday() - weekday - 1) % 7 + 1)

    def next_weekday(self, weekday: int) -> date:
        """The first such weekday after the day."""
        return self.day + timedelta((weekday - self.day.weekday() - 1) % 7 + 1)

    def choose(self, options: Sequence[DateRange], *, patience: int) -> tuple[DateRange, ...]:
        """The options that the tense allows: the one that holds the day, else the latest past or the coming one.

        Without a verb it is the coming one within `patience` days; in the present tense, within `_LONG`. Where that
        settles nothing, or the verb is of another clause, it is one that is near while the other is far, or both.
        """
        if holding := tuple(option for option in options if option.first <= self.day <= option.last):
            return holding[:1]
        past = tuple(option for option in options if option.last < self.day)[-1:]
        coming = tuple(option for option in options if option.first > self.day)[:1]
        if not past or not coming:
            return past or coming
        since, until = (self.day - past[0].last).days, (coming[0].first - self.day).days
        if self.tense == "future" or (self.tense == "present" and until <= _LONG):
            return (*past, *coming) if self._may_be_gone(since, until) else coming
        if self.tense == "past" and (self.role == "since" or self.verb[1] or (patience and since <= until)):
            return (*past, *coming) if self._may_be_coming(since, until) else past
        if self.tense == "none" and until <= patience:
            return coming
        near = _JUST_NOW if self.tense == "none" else _NEAR
        if self.tense == "present" and self.before != "from":
            near = _JUST_OVER
        if max(since, until) >= _FAR and min(since, until) <= near:
            return past if since < until else coming
        return (*past, *coming)

    def _may_be_coming(self, since: int, until: int) -> bool:
        """Whether what comes is so much nearer that a past verb leaves it open: "entered a race in May"."""
        near = {word.text for word in self.words[max(0, self.start - _CLAUSE) : self.start]}
        if self.role == "since" or near & _SURELY_PAST or self.before in ("of", "dated"):
            return False
        is_range = self.before == "to" and self.start > 1 and self.words[self.start - 2].group == "MONTH"
        is_far = since > _REMOTE and until < since and not is_range
        return is_far or (since + until < _MONTH and until <= _SOON_AGAIN)

    def _may_be_gone(self, since: int, until: int) -> bool:
        """Whether the day that a plan was moved to has only just gone: "it slipped to the 20th"."""
        is_new = self.before == "to" and is_moved(self.words, self.start)
        return is_new and since + until < _MONTH and since <= _JUST_GONE


Rule = Callable[[Scene], Reading | None]
