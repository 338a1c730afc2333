"""Rules of English times that name a part of a month or a year: the last week of June, its second half, Q3.

They also name what lies about a day: this time last year, over the last two weeks.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta

from localmem.times.days import months_from, named_day, season_of, valid_day, week_of
from localmem.times.english_calendar import choose_year, two_days
from localmem.times.english_relative import UNIT_PRECISIONS, move_day
from localmem.times.english_scene import SOON, Reading, Rule, Scene, reading_of, reading_of_day
from localmem.times.english_tense import verbs_of
from localmem.times.english_words import words_beside
from localmem.types import DateRange

_HALF = 15  # days of the first half of a month
_LONGEST = 28  # days that every month has
_HOLIDAY_WEEKENDS = {2000: (-2, 1), 4134: (0, 3)}  # days about Easter Sunday and Thanksgiving


def week_of_month(scene: Scene) -> Reading | None:
    """First week of June: its first seven days, or the second to fourth seven; the last week: its last seven."""
    nth = scene.day_of_month
    if nth > 4:
        return None
    return _in_month(scene, lambda month: _days_of(month, 7 * nth - 6, 7) if nth else _last_days(month, 7))


def days_of_month(scene: Scene) -> Reading | None:
    """The first two weeks of August, the last three days of May, the second half of July."""
    length = scene.count * {"fortnight": 14, "week": 7}.get(scene.unit, 1)
    if scene.has("half"):
        length = _HALF if scene.has("first") else 0
    if length > _LONGEST:
        return None
    find = _first_days if scene.has("first") else _last_days
    reading = _in_month(scene, lambda month: find(month, length))
    return reading and reading._replace(precision="day" if scene.has("day") else "week")


def _first_days(month: date, length: int) -> DateRange:
    return _days_of(month, 1, length)


def _days_of(month: date, first: int, length: int) -> DateRange:
    start = month.replace(day=first)
    return DateRange(start, start + timedelta(length - 1))


def _last_days(month: date, length: int) -> DateRange:
    """The last days of a month; where no length is given, those of its second half."""
    last = months_from(month.year, month.month).last
    return DateRange(last.replace(day=last.day - length + 1 if length else _HALF + 1), last)


def _in_month(scene: Scene, find: Callable[[date], DateRange]) -> Reading | None:
    """What `find` makes of the first day of the month that is named, or of this, the last or the next month."""
    if months := scene.all("MONTH"):
        return choose_year(scene, lambda year: find(date(year, months[0].value, 1)), "week")
    which = scene.phrase[-2]
    shifts = [which.value] if which.group in ("LAST", "THIS", "NEXT") else [-1, 0, 1]
    ranges = [find(months_from(scene.day.year, scene.day.month + shift).first) for shift in shifts]
    return reading_of(ranges if len(ranges) == 1 else scene.choose(ranges, patience=SOON), "week")


def last_day(scene: Scene) -> Reading | None:
    """The last day of the month, of next month."""
    reading = _in_month(scene, lambda month: _last_days(month, 1))
    return reading and reading._replace(precision="day")


def day_range_of_this_month(scene: Scene) -> Reading | None:
    """From 11 to 13 this month, the 3rd and 4th of next month."""
    first, last = two_days(scene)
    month = months_from(scene.day.year, scene.day.month + scene.all("LAST", "THIS", "NEXT")[-1].value).first
    start, end = (valid_day(month.year, month.month, day) if day else None for day in (first, last))
    if not start or not end or first >= last or (scene.has("and") and not scene.has("between") and last > first + 1):
        return None
    return Reading((DateRange(start.first, end.last),), "day")


def half_of_year(scene: Scene) -> Reading | None:
    """The first half of 2026, the second half of next year."""
    year = scene.year
    return Reading((months_from(year, 1 if scene.has("first") else 7, 6),), "season") if year else None


def quarter(scene: Scene) -> Reading | None:
    """In Q3, by the end of Q2 2025, the last quarter of 2024; not the third question, Q3."""
    named = scene.value_or_none("QUARTER") or 3 * (scene.day_of_month or 4) - 2
    point = scene.value_or_none("POINT")
    if point == 2 or (scene.year is None and not point and scene.before not in words_beside("quarters_before")):
        return None

    def find(year: int) -> DateRange:
        months = months_from(year, named, 3)
        if point is None:
            return months
        return _first_days(months.first, 10) if point == 1 else _last_days(months.last.replace(day=1), 10)

    return choose_year(scene, find, "week" if point else "season")


def end_of_year(scene: Scene) -> Reading | None:
    """By year end, by eoy: the last three months."""
    return Reading((months_from(scene.day.year, 10, 3),), "season")


def month_in_digits(scene: Scene) -> Reading | None:
    """06/2024."""
    month, year = (int(part) for part in re.split("[-/.]", scene.phrase[0].text))
    return Reading((months_from(year, month),), "month")


def split_winter(scene: Scene) -> Reading | None:
    """Winter 23/24."""
    first, second = (int(part) for part in scene.phrase[-1].text.split("/"))
    return Reading((season_of(2000 + first, 12),), "season") if second == first + 1 else None


def new_year(scene: Scene) -> Reading | None:
    """Since the new year, by new year: its first day; "in the new year" is later."""
    ends = scene.after is None or scene.after.kind in ".,-" or scene.after.text in verbs_of("joins")
    return choose_year(scene, lambda year: named_day(101, year), "day") if ends else None


def holiday_weekend(scene: Scene) -> Reading | None:
    """Easter weekend, Thanksgiving weekend; Labor Day weekend, of a Monday, begins on its Saturday."""
    code = scene.value("HOLIDAY")
    before, after = _HOLIDAY_WEEKENDS.get(code, (-2, 0))
    if code not in _HOLIDAY_WEEKENDS and (code < 3000 or code // 10 % 10):
        return None

    def find(year: int) -> DateRange | None:
        day = named_day(code, year)
        return DateRange(day.first + timedelta(before), day.first + timedelta(after)) if day else None

    return choose_year(scene, find, "day")


def month_this_time(scene: Scene) -> Reading | None:
    """This time last year: about that month."""
    return Reading((months_from(scene.day.year + scene.all("LAST", "NEXT")[-1].value, scene.day.month),), "month")


def day_this_time(scene: Scene) -> Reading | None:
    """This day last year, the same date last month."""
    shift, unit = scene.all("LAST", "NEXT")[-1].value, scene.all("UNIT")[-1].name
    return reading_of_day(move_day(scene.day, unit, shift))


def about_now(scene: Scene) -> Reading | None:
    """Over the last two weeks, in the next three months: up to the day, or from it on."""
    if scene.unit == "night" or (scene.after is not None and scene.after.text in ("of", "or", "before", "in", "and")):
        return None
    count = scene.count if scene.has("next", "coming") else -scene.count
    days = sorted((scene.day, move_day(scene.day, scene.unit, count)))
    return Reading((DateRange(*days),), UNIT_PRECISIONS.get(scene.unit, "day"), role="for")


def years_ago_week(scene: Scene) -> Reading | None:
    """A year ago this week, two years ago next week."""
    day = move_day(scene.day + timedelta(7 * scene.shift), "year", -scene.count)
    return Reading((week_of(day),), "week")


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        week_of_month, days_of_month, last_day, day_range_of_this_month, half_of_year, quarter, end_of_year,
        month_in_digits, split_winter, new_year, holiday_weekend, month_this_time, day_this_time, about_now,
        years_ago_week,
    )
}  # fmt: skip
