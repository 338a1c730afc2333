"""Periods as options and requests write them, and whether a unit was told, or what it tells took place, in one.

The time of the event and the time it was told are two things: "I moved on 3 May", told in June.
"""

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import date

from localmem.errors import BadInput
from localmem.times.annotate import spans_of
from localmem.times.questions import is_sure, overlaps
from localmem.types import DateRange, Unit

_FORM = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2}))?)?")


@dataclass(frozen=True, slots=True)
class Periods:
    """The days of the event, and those on which it was told, that units are limited to; None sets no limit."""

    happened: DateRange | None = None
    learned: DateRange | None = None

    def __bool__(self) -> bool:
        return bool(self.happened or self.learned)

    def hold(self, unit: Unit) -> bool:
        """Whether a unit is within both. Where its text names no day surely, the event is dated by the unit's time."""
        if self.learned and not self.learned.first <= unit.learned.date() <= self.learned.last:
            return False
        if not self.happened:
            return True
        days = [span.readings[0] for span in spans_of(unit) if is_sure(span)]
        return overlaps([self.happened], days or [DateRange(unit.time.date(), unit.time.date())])


NO_LIMIT = Periods()


def parse_period(text: str) -> DateRange:
    """The days of "2025", "2025-03", "2025-03-01" or a range of these, "2025-03..2025-05", open at one end at most.

    Raises BadInput with the forms that are accepted.
    """
    first, dots, last = text.strip().partition("..")
    if not (first or last):
        raise _bad_period(text)
    start = _parse(text, first).first if first else date.min
    end = (_parse(text, last).last if last else date.max) if dots else _parse(text, first).last
    if start > end:
        raise BadInput(f"the period {text!r} ends before it begins; exchange its two dates")
    return DateRange(start, end)


def parse_periods(happened: str | None, learned: str | None) -> Periods:
    """The periods of two texts, None or empty for no limit. Raises BadInput."""
    return Periods(*(parse_period(text) if text else None for text in (happened, learned)))


def _parse(text: str, part: str) -> DateRange:
    match = _FORM.fullmatch(part.strip())
    if not match:
        raise _bad_period(text)
    year, month, day = (int(number) if number else None for number in match.groups())
    try:
        first = date(year or 0, month or 1, day or 1)
    except ValueError as error:
        raise BadInput(f"the period {text!r} holds no date: {error}; correct it") from error
    last_month = month or 12
    return DateRange(first, date(first.year, last_month, day or monthrange(first.year, last_month)[1]))


def _bad_period(text: str) -> BadInput:
    return BadInput(f"{text!r} is not a period; write 2025, 2025-03, 2025-03-01 or a range such as 2025-03..2025-05")
