"""Days, weeks, months, seasons and years as ranges of days, and what days of the year have names. Knows no words."""

from calendar import monthrange
from collections.abc import Callable
from datetime import date, timedelta

from dateutil.easter import easter  # type: ignore[import-untyped]  # publishes no types

from localmem.types import DateRange

WEEKDAY_CODES = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")  # as RFC 5545 writes them, Monday first
_EASTER = 2000  # codes of named days from here on count from Easter Sunday
_NTH = 3000  # and from here on name the nth weekday of a month


def one_day(day: date, offset: int = 0) -> DateRange:
    """The day that is `offset` days from a day."""
    return DateRange(day + timedelta(offset), day + timedelta(offset))


def week_of(day: date, offset: int = 0) -> DateRange:
    """The Monday to Sunday that holds a day, or one `offset` weeks from it."""
    monday = day + timedelta(7 * offset - day.weekday())
    return DateRange(monday, monday + timedelta(6))


def weekend_of(day: date, offset: int = 0) -> DateRange:
    """The Saturday and Sunday of the week that holds a day, or of one `offset` weeks from it."""
    sunday = week_of(day, offset).last
    return DateRange(sunday - timedelta(1), sunday)


def months_from(year: int, month: int, count: int = 1) -> DateRange:
    """`count` months from a month on, which may lie beyond December or before January."""
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    end = date(year + (month + count - 2) // 12, (month + count - 2) % 12 + 1, 1)
    return DateRange(date(year, month, 1), end.replace(day=monthrange(end.year, end.month)[1]))


def years_from(year: int, count: int = 1) -> DateRange:
    """`count` years from the first of January of a year on."""
    return DateRange(date(year, 1, 1), date(year + count - 1, 12, 31))


def season_of(year: int, month: int) -> DateRange:
    """The three months of the season that begins with a month: December for the winter that ends in the next year."""
    return months_from(year, month, 3)


def add_months(day: date, count: int) -> date:
    """The same day of the month, `count` months on, or that month's last day."""
    month = months_from(day.year, day.month + count)
    return month.last if day.day > month.last.day else month.first.replace(day=day.day)


def valid_day(year: int, month: int, day: int) -> DateRange | None:
    """A day of the calendar; None for the 31st of February."""
    try:
        return one_day(date(year, month, day))
    except ValueError:
        return None


def valid_days(year: int, month: int, day: int) -> list[DateRange]:
    """The same as a list, which is empty for the 31st of February."""
    days = valid_day(year, month, day)
    return [days] if days else []


def nth_weekday(year: int, month: int, weekday: int, nth: int) -> DateRange | None:
    """The nth weekday of a month, the last one where `nth` is -1; None where the month has no fifth one."""
    span = months_from(year, month)
    if nth == -1:
        return one_day(span.last, -((span.last.weekday() - weekday) % 7))
    day = one_day(span.first, (weekday - span.first.weekday()) % 7 + 7 * (nth - 1))
    return day if day.first <= span.last else None


def named_day(code: int, year: int) -> DateRange | None:
    """The day that a code names in a year.

    1225 is the 25th of December, 2001 the day after Easter Sunday, 4134 = 3000 + 11 * 100 + 3 * 10 + 4 the fourth
    Thursday of November; a last digit of 9 is the last such weekday.
    """
    if code < 1900:
        return valid_day(year, code // 100, code % 100)
    if code < _EASTER + 100:
        return one_day(easter(year), code - _EASTER)
    month, weekday, nth = (code - _NTH) // 100, code // 10 % 10, code % 10
    return nth_weekday(year, month, weekday, -1 if nth == 9 else nth)


def occurrences(day: date, find: Callable[[int], DateRange | None], years: int = 4) -> list[DateRange]:
    """What `find` gives for the years about a day's, in order."""
    candidates = (find(year) for year in range(max(2, day.year - years), day.year + years + 1))
    return [candidate for candidate in candidates if candidate is not None]
