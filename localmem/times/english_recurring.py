"""Rules of English times that recur, as RFC 5545 writes them: every Monday, on Thursdays, each spring."""

from collections.abc import Mapping
from datetime import date

from localmem.times.days import (
    WEEKDAY_CODES,
    months_from,
    named_day,
    nth_weekday,
    occurrences,
    one_day,
    valid_day,
    weekend_of,
)
from localmem.times.english_scene import Reading, Rule, Scene
from localmem.times.english_tense import is_moved
from localmem.types import DateRange


def _next_of(day: date, weekdays: list[int]) -> DateRange:
    """The first of some weekdays that is not before a day."""
    return one_day(day, min((weekday - day.weekday()) % 7 for weekday in weekdays))


def weekly(scene: Scene) -> Reading | None:
    """Every Monday, on Tuesdays and Thursdays, Friday nights."""
    weekdays = sorted({word.value for word in scene.all("WEEKDAY", "WEEKDAYS")})
    names = ",".join(WEEKDAY_CODES[weekday] for weekday in weekdays)
    if scene.has("other", "second", "two", "fortnight"):
        return alternate_weekdays(scene)
    return Reading((_next_of(scene.day, weekdays),), "day", f"FREQ=WEEKLY;BYDAY={names}")


def weekly_range(scene: Scene) -> Reading | None:
    """Mondays to Fridays."""
    if is_moved(scene.words, scene.start):
        return None
    first, last = (word.value for word in scene.all("WEEKDAYS"))
    weekdays = [(first + step) % 7 for step in range((last - first) % 7 + 1)]
    names = ",".join(WEEKDAY_CODES[weekday] for weekday in sorted(weekdays))
    return Reading((_next_of(scene.day, weekdays),), "day", f"FREQ=WEEKLY;BYDAY={names}")


def alternate_weekdays(scene: Scene) -> Reading | None:
    """Every other Tuesday."""
    weekday = scene.all("WEEKDAY", "WEEKDAYS")[0].value
    return Reading((_next_of(scene.day, [weekday]),), "day", f"FREQ=WEEKLY;INTERVAL=2;BYDAY={WEEKDAY_CODES[weekday]}")


def nth_weekdays(scene: Scene) -> Reading | None:
    """Every 2nd Friday is every other one; every third has no first day that is sure."""
    return alternate_weekdays(scene) if scene.day_of_month == 2 else None


def alternate_weekends(scene: Scene) -> Reading | None:
    """Every other weekend."""
    return Reading((weekend_of(scene.day),), "day", "FREQ=WEEKLY;INTERVAL=2;BYDAY=SA,SU")


def daily(scene: Scene) -> Reading | None:
    """Every day, every morning."""
    return Reading((one_day(scene.day),), "day", "FREQ=DAILY")


def workdays(scene: Scene) -> Reading | None:
    """Every weekday, on weekdays."""
    return Reading((_next_of(scene.day, [0, 1, 2, 3, 4]),), "day", f"FREQ=WEEKLY;BYDAY={','.join(WEEKDAY_CODES[:5])}")


def weekends(scene: Scene) -> Reading | None:
    """Every weekend, at weekends."""
    return Reading((weekend_of(scene.day),), "day", "FREQ=WEEKLY;BYDAY=SA,SU")


def monthly_weekday(scene: Scene) -> Reading | None:
    """The first Friday of the month, the last Monday of every month."""
    weekday, nth = scene.all("WEEKDAY", "WEEKDAYS")[0].value, scene.day_of_month or -1
    if nth > 4 or (scene.has("the") and not scene.has("every", "each") and scene.tense == "past"):
        return None
    months = (months_from(scene.day.year, scene.day.month + offset).first for offset in range(2))
    days = (nth_weekday(month.year, month.month, weekday, nth) for month in months)
    first = next(day for day in days if day and day.first >= scene.day)
    return Reading((first,), "day", f"FREQ=MONTHLY;BYDAY={nth}{WEEKDAY_CODES[weekday]}")


def monthly_day(scene: Scene) -> Reading | None:
    """The 5th of every month."""
    numbers = sorted({word.value for word in scene.all("ORDINAL", "SMALL")})
    if len(numbers) > 1 and not scene.all("TENS"):
        return _monthly_days(scene.day, numbers)
    number = scene.day_of_month
    months = (months_from(scene.day.year, scene.day.month + offset).first for offset in range(4))
    days = (valid_day(month.year, month.month, number) for month in months)
    first = next((day for day in days if day and day.first >= scene.day), None)
    return Reading((first,), "day", f"FREQ=MONTHLY;BYMONTHDAY={number}") if first else None


def _monthly_days(day: date, numbers: list[int]) -> Reading:
    """The 1st and the 15th of every month."""
    months = [months_from(day.year, day.month + offset).first for offset in range(4)]
    options = (valid_day(month.year, month.month, number) for month in months for number in numbers)
    first = next(option for option in options if option and option.first >= day)
    return Reading((first,), "day", f"FREQ=MONTHLY;BYMONTHDAY={','.join(str(number) for number in numbers)}")


def monthly_last_day(scene: Scene) -> Reading | None:
    """The last day of every month."""
    last = months_from(scene.day.year, scene.day.month).last
    return Reading((one_day(last),), "day", "FREQ=MONTHLY;BYMONTHDAY=-1")


def yearly_day(scene: Scene) -> Reading | None:
    """Every 5th of May, 5 May every year."""
    month, number = scene.value("MONTH"), scene.day_of_month
    options = occurrences(scene.day, lambda year: valid_day(year, month, number), 8)
    if not options:
        return None
    repeats = f"FREQ=YEARLY;BYMONTH={month};BYMONTHDAY={number}"
    return Reading((_not_past(options, scene.day),), "day", repeats)


def yearly(scene: Scene) -> Reading | None:
    """Every October, each spring, every Christmas."""
    if months := scene.all("MONTH", "SEASON"):
        count, code = (1, "month") if months[0].group == "MONTH" else (3, "season")
        options = occurrences(scene.day, lambda year: months_from(year, months[0].value, count))
        repeats = f"FREQ=YEARLY;BYMONTH={months[0].value}"
        return Reading((_not_past(options, scene.day),), "month" if code == "month" else "season", repeats)
    number = scene.value("HOLIDAY")
    first = _not_past(occurrences(scene.day, lambda year: named_day(number, year)), scene.day)
    fixed = f"FREQ=YEARLY;BYMONTH={number // 100};BYMONTHDAY={number % 100}"
    return Reading((first,), "day", fixed if number < 1900 else "FREQ=YEARLY")


def _not_past(options: list[DateRange], day: date) -> DateRange:
    return next(option for option in options if option.last >= day)


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        weekly, weekly_range, alternate_weekdays, alternate_weekends, daily, workdays, weekends,
        monthly_weekday, monthly_day, monthly_last_day, nth_weekdays, yearly, yearly_day,
    )
}  # fmt: skip
