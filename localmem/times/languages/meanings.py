"""What the patterns of times mean, the same in all languages: from a pattern's values and the day to ranges of days.

A meaning returns None where its values do not fit it, and BLOCKED where the words name no time that is sure. Shifts
count calendar units from the present one; COMING is the next to come, be it in the present unit. Knows no words.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from typing import NamedTuple

from localmem.times.days import (
    add_months,
    months_from,
    named_day,
    nth_weekday,
    occurrences,
    one_day,
    valid_day,
    valid_days,
    week_of,
    weekend_of,
    years_from,
)
from localmem.types import DateRange, Precision, TimeRole

COMING = 9
DAY, WEEKEND, WEEK, _MONTH, _YEAR = 1, 5, 7, 30, 365  # values of the slots `unit` and `period`
_PRECISIONS: Mapping[int, Precision] = {DAY: "day", WEEKEND: "day", WEEK: "week", _MONTH: "month", _YEAR: "year"}
_WINTER = 4
_YEARS_TO_COME = 20  # for which two digits are years of this century
_LONG = timedelta(days=270)  # what comes later than this may as well have been, where no tense tells
_NEAR = timedelta(days=62)  # within this a weekday with a day is looked for, and a date after a past verb is not sure

Values = Mapping[str, int]


class Frame(NamedTuple):
    """When something was said: the day, "past", "future" or "" for its tense, and the month named before, if any.

    In `doubt` a past time was named just before.
    """

    day: date
    tense: str
    doubt: bool = False
    month: DateRange | None = None


class Meaning(NamedTuple):
    """What a pattern means: the fields of a TimeSpan without its words."""

    readings: tuple[DateRange, ...]
    precision: Precision
    role: TimeRole = "at"
    repeats: str = ""


BLOCKED = Meaning((), "day")


def _offset(values: Values, frame: Frame) -> Meaning:
    span = one_day(frame.day, values["offset"] + 7 * values.get("number", 0))
    if values.get("weekday", span.first.weekday()) != span.first.weekday():
        return BLOCKED
    return Meaning((span,), "day")


def _ago(values: Values, frame: Frame) -> Meaning:
    return _away(values, frame, -1)


def _ahead(values: Values, frame: Frame) -> Meaning:
    return _away(values, frame, 1)


def _since(values: Values, frame: Frame) -> Meaning:
    return _away(values, frame, -1)._replace(role="since")


def _away(values: Values, frame: Frame, sign: int) -> Meaning:
    """So many units from today: `exact` for "a year ago today", `loose` for "in fifteen days", maybe a day less."""
    unit, count = values["unit"], sign * values["number"]
    if values.get("exact"):
        return Meaning((one_day(_same_day(frame.day, unit, count)),), "day")
    readings = [_unit_at(frame.day, unit, count)]
    if values.get("loose"):
        readings.insert(0, _unit_at(frame.day, unit, count - sign))
    return Meaning(tuple(readings), _PRECISIONS[unit])


def _same_day(day: date, unit: int, count: int) -> date:
    """The day that is exactly so many units from a day."""
    months = {_MONTH: count, _YEAR: 12 * count}.get(unit)
    return add_months(day, months) if months else day + timedelta(days=count * unit)


def _unit_at(day: date, unit: int, count: int) -> DateRange:
    """The calendar unit that is so many from the one that holds a day."""
    if unit == WEEKEND:
        return weekend_of(day, count)
    if unit == WEEK:
        return week_of(day, count)
    if unit == _MONTH:
        return months_from(day.year, day.month + count)
    return years_from(day.year + count) if unit == _YEAR else one_day(day, count)


def _lasting(values: Values, frame: Frame) -> Meaning | None:
    """For so long from today on, where it is planned."""
    unit, count = values["unit"], values["number"]
    if frame.tense != "future":
        return BLOCKED
    return Meaning((DateRange(frame.day, _same_day(frame.day, unit, count)),), _PRECISIONS[unit], "for")


def _period(values: Values, frame: Frame) -> Meaning:
    """This, the last or the next week, month, year or weekend."""
    unit, shift = values["period"], values["shift"]
    this = _unit_at(frame.day, unit, 0)
    if unit == WEEKEND and shift == COMING:
        shift = int(frame.day >= this.first)
    if unit == WEEKEND and shift == 0 and frame.tense == "past" and frame.day < this.first:
        shift = -1
    readings = [_unit_at(frame.day, unit, 1 if shift == COMING else shift)]
    if unit == WEEKEND and shift == 1 and frame.day < this.first and not values.get("sure"):
        readings.insert(0, this)
    return Meaning(tuple(readings), _PRECISIONS[unit])


def _weekend(values: Values, frame: Frame) -> Meaning | None:
    """The weekend with nothing said of which; `tensed` where the words may also speak of every weekend."""
    if values.get("tensed") and not frame.tense:
        return None
    past = frame.tense == "past" and frame.day.weekday() < 5
    return Meaning((weekend_of(frame.day, -1 if past else 0),), "day")


def _weekday(values: Values, frame: Frame) -> Meaning | None:
    """A weekday of the calendar week that `weeks` shifts to, or so many weeks (`number`) after the coming one."""
    weekday, day = values["weekday"], frame.day
    coming = one_day(day, (weekday - day.weekday() - 1) % 7 + 1)
    last = one_day(day, -((day.weekday() - weekday - 1) % 7 + 1))
    if "weeks" in values:
        return Meaning((one_day(week_of(day, values["weeks"]).first, weekday),), "day")
    if "number" in values:
        return Meaning((one_day(coming.first, 7 * values["number"]),), "day")
    if frame.doubt and not frame.tense and "shift" not in values:
        return Meaning((last, coming), "day")
    shift = values.get("shift", -1 if frame.tense == "past" else COMING)
    today = day.weekday() == weekday
    if shift == 0:
        shift = -1 if frame.tense == "past" and not today else COMING
        coming = one_day(day) if today else coming
    if abs(shift) == 2:
        return BLOCKED
    if shift == 1 and day.weekday() < weekday:
        return Meaning((coming, one_day(coming.first, 7)), "day")
    return Meaning((last if shift == -1 else coming,), "day")


def _weekday_and_day(values: Values, frame: Frame) -> Meaning:
    """The day near today that has both this weekday and this number."""
    days = [frame.day + timedelta(days=offset) for offset in range(-_NEAR.days, _NEAR.days + 1)]
    fitting = [day for day in days if (day.weekday(), day.day) == (values["weekday"], values["day"])]
    if frame.tense == "past":
        fitting = [day for day in fitting if day <= frame.day]
    elif frame.tense == "future" or any(day >= frame.day for day in fitting):
        fitting = [day for day in fitting if day >= frame.day]
    nearest = min(fitting, key=lambda day: abs(day - frame.day), default=None)
    return Meaning((one_day(nearest),), "day") if nearest else BLOCKED


def _day_of_month(values: Values, frame: Frame) -> Meaning | None:
    """The 9th of the month named before; else the nearest by tense, unless the words need a month before them.

    `months` is a shift from the present month: the 9th of next month.
    """
    if "months" in values:
        month = months_from(frame.day.year, frame.day.month + values["months"]).first
        return _days(valid_days(month.year, month.month, values["day"]))
    if frame.month:
        days = valid_days(frame.month.first.year, frame.month.first.month, values["day"])
        if days and frame.tense != ("past" if days[0].first > frame.day else "future"):
            return _days(days)
    if values.get("needs_month"):
        return None
    months = [months_from(frame.day.year, frame.day.month + offset).first for offset in (-2, -1, 0, 1, 2)]
    days = [valid for month in months if (valid := valid_day(month.year, month.month, values["day"]))]
    if frame.tense == "past":
        return _days([day for day in days if day.first <= frame.day][-1:])
    return _days([day for day in days if day.first >= frame.day][:1])


def _date(values: Values, frame: Frame) -> Meaning:
    """A day of a month, with or without a year, or its week; a weekday with it settles a year that is not said."""
    if "week" in values:
        readings = _date({name: value for name, value in values.items() if name != "week"}, frame).readings
        return Meaning(tuple(week_of(day.first) for day in readings), "week")
    month = values["month"]
    if month not in range(1, 13):
        return BLOCKED
    year = _year_of(values, frame)
    if year is not None:
        return _days(valid_days(year, month, values["day"]))
    if "weekday" in values:
        near = occurrences(frame.day, lambda year: valid_day(year, month, values["day"]), 1)
        fitting = [day for day in near if day.first.weekday() == values["weekday"]]
        if len(fitting) == 1:
            return _days(fitting)
    return _days(_nearest(values, frame, lambda year: valid_day(year, month, values["day"])))


def _dates(values: Values, frame: Frame) -> Meaning | None:
    """From a day to another of the same month; with a third between them ("22, 23 and 24") all follow one another."""
    first, last = values["day"], values["to"]
    if first >= last or (values.get("listed") and last - first != ("also" in values) + 1):
        return None
    start, end = (_date({**values, "day": day}, frame).readings for day in (first, last))
    if len(start) != 1 or len(end) != 1:
        return BLOCKED
    return Meaning((DateRange(start[0].first, end[0].last),), "day")


def _nth_weekday(values: Values, frame: Frame) -> Meaning:
    """The second Sunday of a month."""

    def find(year: int) -> DateRange | None:
        return nth_weekday(year, values["month"], values["weekday"], values["ordinal"])

    year = _year_of(values, frame)
    if year is None:
        return _days(_nearest(values, frame, find))
    day = find(year)
    return _days([day] if day else [])


def _month(values: Values, frame: Frame) -> Meaning:
    return Meaning(tuple(_months(values, frame)), "month")


def _part(values: Values, frame: Frame) -> Meaning:
    """The beginning, the middle or the end of a month."""
    if "month" in values:
        months = _months(values, frame)
    else:
        months = [months_from(frame.day.year, frame.day.month + values.get("months", 0))]
    return Meaning(tuple(_part_of(month, values["part"]) for month in months), "week")


def _part_of(month: DateRange, part: int) -> DateRange:
    first = month.first.replace(day=(1, 11, 21)[part - 1])
    return DateRange(first, month.last if part == 3 else first.replace(day=10 * part))


def _months(values: Values, frame: Frame) -> Iterable[DateRange]:
    year = _year_of(values, frame)
    if year is not None:
        return [months_from(year, values["month"])]
    return _nearest(values, frame, lambda year: months_from(year, values["month"]))


def _season(values: Values, frame: Frame) -> Meaning | None:
    """A meteorological season; winters are of the year in which they begin."""

    def find(year: int) -> DateRange:
        return months_from(year, 3 * values["season"], 3)

    year = _year_of(values, frame)
    if year is not None:
        return Meaning((find(year),), "season")
    shift = values.get("shift")
    if shift is None and not frame.tense:
        return None
    if shift == 0 and values["season"] != _WINTER:
        return Meaning((find(frame.day.year),), "season")
    seasons = occurrences(frame.day, find, 2)
    if shift is not None and shift in (1, COMING):
        later = [season for season in seasons if season.first > frame.day][:2]
        sure = shift == COMING or later[0].first.year > frame.day.year
        return Meaning(tuple(later[:1] if sure else later), "season")
    if shift == -1:
        return Meaning(tuple([season for season in seasons if season.last < frame.day][-1:]), "season")
    if frame.tense == "past":
        return Meaning(tuple([season for season in seasons if season.first <= frame.day][-1:]), "season")
    return Meaning(tuple([season for season in seasons if season.last >= frame.day][:1]), "season")


def _holiday(values: Values, frame: Frame) -> Meaning:
    year = _year_of(values, frame)
    if year is not None:
        day = named_day(values["holiday"], year)
        return _days([day] if day else [])
    return _days(_nearest(values, frame, lambda year: named_day(values["holiday"], year)))


def _year(values: Values, frame: Frame) -> Meaning:
    year = _year_of(values, frame)
    return BLOCKED if year is None else Meaning((years_from(year),), "year")


def _decade(values: Values, _frame: Frame) -> Meaning:
    first = values["decade"] + (1900 if values["decade"] < 100 else 0)
    return Meaning((years_from(first, 10),), "year")


def _skip(_values: Values, _frame: Frame) -> Meaning:
    return BLOCKED


def _year_of(values: Values, frame: Frame) -> int | None:
    """The year that is said: in digits, or as this, the last or the next one."""
    if "year" in values:
        year = values["year"]
        century = 0 if year > 99 else 2000 if year <= frame.day.year % 100 + _YEARS_TO_COME else 1900
        return century + year
    return frame.day.year + values["years"] if "years" in values else None


def _nearest(values: Values, frame: Frame, find: Callable[[int], DateRange | None]) -> list[DateRange]:
    """What recurs each year: the last or the next one, by a shift or else by tense; in this month it is this year's."""
    near = occurrences(frame.day, find)
    shift = values.get("shift")
    if shift == -1:
        return [span for span in near if span.last < frame.day][-1:]
    if shift in (1, COMING):
        return [span for span in near if span.first > frame.day][:1]
    this = [span for span in near if span.first.year == frame.day.year]
    if this and (shift == 0 or this[0].first.month == frame.day.month):
        return this[:1]
    last = [span for span in near if span.first <= frame.day][-1:]
    coming = [span for span in near if span.last >= frame.day][:1]
    if frame.tense == "past":
        soon = "day" in values and coming and coming[0].first - frame.day < _NEAR  # "we have got the hall for the 6th"
        return last + coming if soon else last
    far = not frame.tense and coming and coming[0].first - frame.day > _LONG
    return last + coming if far else coming


def _days(days: Iterable[DateRange]) -> Meaning:
    return Meaning(tuple(days), "day")


MEANINGS: Mapping[str, Callable[[Values, Frame], Meaning | None]] = {
    "offset": _offset,
    "ago": _ago,
    "ahead": _ahead,
    "since": _since,
    "lasting": _lasting,
    "period": _period,
    "weekend": _weekend,
    "weekday": _weekday,
    "weekday_and_day": _weekday_and_day,
    "day_of_month": _day_of_month,
    "date": _date,
    "nth_weekday": _nth_weekday,
    "dates": _dates,
    "month": _month,
    "part": _part,
    "season": _season,
    "holiday": _holiday,
    "year": _year,
    "decade": _decade,
    "skip": _skip,
}
