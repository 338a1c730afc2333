"""Calendar arithmetic that the rules of every language share: weeks, months, seasons, feast days. Knows no words."""

from datetime import date, timedelta

from dateutil.easter import easter  # type: ignore[import-untyped]  # publishes no types

from localmem.types import DateRange

SPRING, SUMMER, AUTUMN, WINTER = 1, 2, 3, 4
_LAST_DAYS = (10, 20)  # of the beginning and of the middle of a month


def one_day(day: date) -> DateRange:
    """A day as a range."""
    return DateRange(day, day)


def week_of(day: date) -> DateRange:
    """The week from Monday to Sunday that holds a day."""
    monday = day - timedelta(days=day.weekday())
    return DateRange(monday, monday + timedelta(days=6))


def month_of(year: int, month: int) -> DateRange:
    """A calendar month; 0 is the December before the year, 13 the January after it. Raises ValueError before year 1."""
    years, at = divmod(month - 1, 12)
    years_after, at_after = divmod(month, 12)
    end = date(year + years_after, at_after + 1, 1) - timedelta(days=1)
    return DateRange(date(year + years, at + 1, 1), end)


def year_of(year: int) -> DateRange:
    """A calendar year. Raises ValueError before year 1 and after year 9999."""
    return DateRange(date(year, 1, 1), date(year, 12, 31))


def season_of(year: int, season: int) -> DateRange:
    """A meteorological season of three months that begins in the year: the winter of 2024 ends in February 2025."""
    return DateRange(month_of(year, 3 * season).first, month_of(year, 3 * season + 2).last)


def part_of_month(month: DateRange, part: int) -> DateRange:
    """The beginning (1), the middle (2) or the end (3) of a month: ten days, ten days, and what remains."""
    starts = (1, *(last + 1 for last in _LAST_DAYS))
    end = month.last if part == len(starts) else month.first.replace(day=_LAST_DAYS[part - 1])
    return DateRange(month.first.replace(day=starts[part - 1]), end)


def next_weekday(day: date, weekday: int) -> date:
    """The first such weekday after a day; Monday is 0."""
    return day + timedelta(days=(weekday - day.weekday() - 1) % 7 + 1)


def last_weekday(day: date, weekday: int) -> date:
    """The last such weekday before a day; Monday is 0."""
    return day - timedelta(days=(day.weekday() - weekday - 1) % 7 + 1)


def nth_weekday(year: int, month: int, weekday: int, nth: int) -> date | None:
    """The first, second ... such weekday of a month, or its last (-1); None where the month has fewer."""
    days = month_of(year, month)
    if nth < 0:
        return last_weekday(days.last + timedelta(days=1), weekday)
    day = next_weekday(days.first - timedelta(days=1), weekday) + timedelta(weeks=nth - 1)
    return day if day <= days.last else None


def easter_day(year: int, offset: int = 0) -> date:
    """Easter Sunday of the Gregorian calendar, or the day so many days after it."""
    sunday: date = easter(year)
    return sunday + timedelta(days=offset)
