"""The search of one text for the times that it names: what stands where, its tense, and what belongs together.

Knows no words and no calendar; these are in the language's file and in `meanings`.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

from localmem.times.days import one_day
from localmem.times.languages.grammar import Language, Pattern
from localmem.times.languages.meanings import BLOCKED, COMING, MEANINGS, Frame, Meaning
from localmem.times.languages.recurring import find_recurring, join_weekly
from localmem.types import DateRange, TimeRole, TimeSpan

_SENTENCE_END = re.compile(r"(?<![0-9])[.!?…](?=\s|$)|[。！？；;\n]")
_CLAUSE_END = re.compile(r"[,:，、：()（）]|\s[-–—]\s")
_BEFORE = 24  # characters before a time that may hold what it begins or ends
_RECENT = 4  # times named before that may tell the month of a day
_GAP = 12  # characters between a year and what is of it
_SHORT_CLAUSE = 3  # characters beside a time that hold no tense
_NAME_MONTHS = frozenset({"date", "dates", "month", "part", "day_of_month"})
_TENSELESS = frozenset({"offset", "ago", "ahead", "since", "year", "decade", "every", "skip"})
_YEARLY = frozenset({"date", "month", "part", "season", "holiday"})
_FOLLOWING = frozenset({"date", "month", "weekday", "day_of_month"})  # the last of a range follows the first
_UNIT_SHIFTS = frozenset({"weeks", "months", "years"})
_ROLES: dict[str, tuple[TimeRole, str]] = {  # what is written before or after a time: its role, and a tense it implies
    "at": ("at", ""), "pair": ("at", ""), "plan": ("at", "future"), "since": ("since", "past"), "from": ("since", ""),
    "begin": ("since", ""), "until": ("until", ""),
}  # fmt: skip


class _Match(NamedTuple):
    pattern: Pattern
    values: Mapping[str, int]
    start: int  # with what tells its role
    end: int
    core: tuple[int, int]  # without
    place: str  # what tells its role
    meaning: Meaning


class Finder:
    """The search of one text."""

    def __init__(self, rules: Language, text: str, day: date, context: Sequence[TimeSpan]) -> None:
        self._rules, self._text, self._day, self._context = rules, text, day, context
        self._folded = rules.fold(text)
        self._matches: list[_Match] = []
        self._separators: dict[re.Pattern[str], list[tuple[int, int]]] = {}

    def find(self) -> list[TimeSpan]:
        """The times of the text in its order."""
        end = 0
        for opening in self._rules.openings.finditer(self._folded):
            start = opening.start()
            if start < end or not (match := self._longest(start)):
                continue
            end = match.end
            previous = self._matches[-1] if self._matches else None
            if previous and (beside := self._beside(previous, match)):
                self._matches.append(beside)
            elif previous and (joined := self._join(previous, match) or self._join_year(previous, match)):
                self._matches[-1] = joined
            else:
                self._matches.append(match)
        return [self._as_span(match) for match in self._matches if match.meaning.readings]

    def _longest(self, start: int) -> _Match | None:
        """The longest match at a character that means anything; of two as long the one with more constants."""
        candidates = self._rules.candidates(self._folded, start)
        for pattern, match in sorted(candidates, key=lambda pair: (-pair[1].end(), -len(pair[0].constants))):
            if reading := self._read(pattern, match):
                return reading
        return None

    def _read(self, pattern: Pattern, match: re.Match[str]) -> _Match | None:
        values = dict(pattern.constants)
        for name, words in match.groupdict().items():
            if words is not None:
                value = self._rules.value(pattern.slots[name], words)
                values[name] = 1 if value == COMING and name in _UNIT_SHIFTS else value
        start, end = match.span()
        before = self._rules.before.search(self._folded, max(0, start - _BEFORE), start)
        if pattern.meaning == "day_of_month":  # its words begin with a preposition
            before = before or self._rules.opening.match(self._folded, start, end)
        after = self._rules.after.match(self._folded, end)
        place = (before and before.lastgroup) or (after and after.lastgroup) or "at"
        role, implied = _ROLES[place]
        present = "present" in pattern.constants
        needs_tense = present or pattern.meaning not in _TENSELESS
        tense = self._tense(start, end, clause_only=present) if needs_tense else ""
        if place == "from":
            tense = tense or "past"
        frame = Frame(self._day, implied or tense, doubt=self._tells_of_past(start, end))
        if pattern.meaning == "day_of_month":
            here = self._months_here()
            month = self._month_before(values["day"], here)
            frame = Frame(self._day, "" if here else frame.tense, month=month)
        meaning = resolve(pattern, values, frame)
        if meaning is None:
            return None
        if meaning.role == "for" and self._before_in_sentence(start, end):
            meaning = BLOCKED  # it begins at that time, not today
        if meaning.role == "at" and pattern.meaning != "dates":
            meaning = meaning._replace(role=role)
        last = self._matches[-1].end if self._matches else 0
        start = max(before.start(), last) if before and role != "at" else start
        return _Match(pattern, values, start, after.end() if after else end, match.span(), place, meaning)

    def _before_in_sentence(self, start: int, end: int) -> _Match | None:
        """The time that was named before in the same sentence."""
        last = self._matches[-1] if self._matches else None
        return last if last and last.end > self._about(_SENTENCE_END, start, end)[0] else None

    def _tells_of_past(self, start: int, end: int) -> bool:
        """Whether the time before in the same sentence was past, so that this may be too where no verb tells."""
        last = self._before_in_sentence(start, end)
        return bool(last and last.meaning.readings and last.meaning.readings[-1].last < self._day)

    def _tense(self, start: int, end: int, *, clause_only: bool = False) -> str:
        """ "past" or "future" by the clause about a time, or by its sentence where nothing else is in the clause."""
        sentence = self._about(_SENTENCE_END, start, end)
        clause = self._about(_CLAUSE_END, start, end)
        clause = (max(clause[0], sentence[0]), min(clause[1], sentence[1]))
        tense = self._tense_of(*clause)
        beside = clause[1] - clause[0] - (end - start)
        if (
            tense
            or clause_only
            or not (self._rules.verb_last or beside <= (0 if self._rules.unspaced else _SHORT_CLAUSE))
        ):
            return tense
        return self._tense_of(*sentence)

    def _about(self, separator: re.Pattern[str], start: int, end: int) -> tuple[int, int]:
        """Where the part of the text about a time begins and ends."""
        if separator not in self._separators:
            self._separators[separator] = [match.span() for match in separator.finditer(self._text)]
        spans = self._separators[separator]
        begin = max((after for _, after in spans if after <= start), default=0)
        return begin, min((before for before, _ in spans if before >= end), default=len(self._text))

    def _tense_of(self, start: int, end: int) -> str:
        text = self._folded if self._rules.unspaced else self._text
        past = self._rules.past.search(text, start, end) is not None
        future = self._rules.future.search(text, start, end) is not None
        return "" if past == future else "past" if past else "future"

    def _months_here(self) -> list[Meaning]:
        """What this text has named of months so far."""
        meanings = [match.meaning for match in self._matches if match.pattern.meaning in _NAME_MONTHS]
        return meanings or [match.meaning for match in self._matches if match.meaning.precision == "month"]

    def _month_before(self, day: int, here: Sequence[Meaning]) -> DateRange | None:
        """The date named before that has the same day, or else the month named before, if not several were."""
        named = (span for span in self._context if span.precision == "month" or self._rules.names_month(span.words))
        both: list[TimeSpan | Meaning] = [*list(named)[-_RECENT:], *here]
        sure = [span for span in both if len(span.readings) == 1 and span.role == "at" and not span.repeats]
        days = [span.readings[0] for span in sure]
        if same := [span for span in days if span.first == span.last and span.first.day == day]:
            return same[-1]
        one_month = len({span.first.replace(day=1) for span in days}) == 1
        return days[-1] if days and (here or one_month) else None

    def _join(self, first: _Match, second: _Match) -> _Match | None:
        """Two matches that are one time: the days on which something recurs, or the first and the last of a range."""
        between = self._rules.between.fullmatch(self._folded, first.core[1], second.core[0])
        if not between or not (first.meaning.readings and second.meaning.readings):
            return None
        weekdays = first.pattern.meaning == "weekday" and set(second.values) == {"weekday"}
        joint = between.lastgroup
        if joint == "open" and (second.meaning.role == "until" or weekdays):
            joint = "to"
        if first.place == "pair" and joint == "also":
            joint = "to"
        if first.meaning.repeats and set(second.values) == {"weekday"}:
            again = find_recurring(second.values, Frame(self._day, ""))
            meaning = again and join_weekly(first.meaning, again, self._day if joint == "to" else None)
        elif joint == "to":
            meaning = self._range(first, second)
        else:
            return None
        return meaning and second._replace(start=first.start, core=(first.core[0], second.core[1]), meaning=meaning)

    def _beside(self, first: _Match, second: _Match) -> _Match | None:
        """A weekday named beside another: of the same week, and not sure where it would come before that one."""
        between = self._rules.between.fullmatch(self._folded, first.core[1], second.core[0])
        if not between or between.lastgroup != "also" or not first.meaning.readings:
            return None
        if first.pattern.meaning != "weekday" or set(second.values) != {"weekday"}:
            return None
        day, meaning = second.meaning.readings[0].first, second.meaning
        if "weeks" in first.values or "shift" in first.values:
            meaning = resolve(second.pattern, {**first.values, **second.values}, Frame(self._day, "")) or BLOCKED
        elif self._day < day < first.meaning.readings[0].first:
            meaning = meaning._replace(readings=(one_day(day), one_day(day, 7)))
        return second._replace(meaning=meaning)

    def _range(self, first: _Match, second: _Match) -> Meaning | None:
        """From the first to the last of a range; what either leaves out is taken from the other."""
        kinds = {first.pattern.meaning, second.pattern.meaning}
        if kinds == {"weekday"} and self._tense(first.start, second.end) != "future":
            return BLOCKED  # as often a habit
        if "year" in second.values and first.pattern.meaning in _NAME_MONTHS:
            begin = resolve(first.pattern, {"year": second.values["year"], **first.values}, Frame(self._day, ""))
        elif first.pattern.meaning in _FOLLOWING:
            begin = resolve(first.pattern, first.values, Frame(self._day, self._tense(first.start, second.end)))
        else:
            begin = first.meaning
        end: Meaning | None = second.meaning
        ranges = []
        for start in begin.readings if begin else ():
            if second.pattern.meaning in _FOLLOWING:
                end = resolve(second.pattern, second.values, Frame(start.first, "future"))
            if end and len(end.readings) == 1 and start.first <= end.readings[0].last:
                ranges.append(DateRange(start.first, end.readings[0].last))
        present = [days for days in ranges if days.first <= self._day <= days.last]
        return Meaning(tuple(present or ranges), end.precision) if end and ranges else BLOCKED

    def _join_year(self, first: _Match, second: _Match) -> _Match | None:
        """A month, season or feast day and the year beside it as one time: "last year around Christmas"."""
        gap = self._folded[first.end : second.start]
        if len(gap) > _GAP or not re.fullmatch(r"[\w\s']*", gap):
            return None
        for year, other in ((first, second), (second, first)):
            values = _year_values(year)
            if values and other.pattern.meaning in _YEARLY and not other.values.keys() & {"year", "years", "shift"}:
                meaning = resolve(other.pattern, {**other.values, **values}, Frame(self._day, ""))
                core = (first.core[0], second.core[1])
                joined = meaning and meaning._replace(role=first.meaning.role)
                return joined and other._replace(start=first.start, end=second.end, core=core, meaning=joined)
        return None

    def _as_span(self, match: _Match) -> TimeSpan:
        words = self._text[match.start : match.end]
        meaning = match.meaning
        return TimeSpan(words, match.start, meaning.readings, meaning.precision, meaning.role, meaning.repeats)


def _year_values(match: _Match) -> Mapping[str, int]:
    """What a match says of the year, if it names a year and nothing else."""
    if match.pattern.meaning == "period" and match.meaning.precision == "year":
        shift = match.values["shift"]
        return {"years": 1 if shift == COMING else shift}
    return match.values if match.pattern.meaning == "year" else {}


def resolve(pattern: Pattern, values: Mapping[str, int], frame: Frame) -> Meaning | None:
    """What a pattern means with these values; BLOCKED for what lies outside of the calendar."""
    try:
        find = find_recurring if pattern.meaning == "every" else MEANINGS[pattern.meaning]
        return find(values, frame)
    except (ValueError, OverflowError):
        return BLOCKED
