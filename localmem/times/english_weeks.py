"""Rules of English times that count weeks from a day: Friday week, a week last Tuesday, Tuesday was a fortnight."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from localmem.times.days import months_from, named_day, occurrences, season_of, week_of, weekend_of
from localmem.times.english_calendar import read_name, which_named
from localmem.times.english_relative import move_day, shift_by
from localmem.times.english_scene import Reading, Rule, Scene, reading_of, reading_of_day
from localmem.times.english_tense import verbs_of
from localmem.times.english_weekdays import weekday
from localmem.times.english_words import words_beside
from localmem.types import DateRange

_WEEKS_AHEAD = 6  # up to which people count the weeks to what is to come


def ago_on(scene: Scene) -> Reading | None:
    """A year ago today, two years ago this Saturday, a week ago Friday; a year ago the day, as Scots say."""
    if scene.has("the") and not scene.all("WEEKDAY"):
        anchor = scene.day
    elif near := scene.all("NEAR"):
        anchor = scene.day + timedelta(near[0].value)
    elif scene.has("this"):
        anchor = scene.day + timedelta((scene.value("WEEKDAY") - scene.day.weekday()) % 7)
    else:
        anchor = scene.last_weekday(scene.value("WEEKDAY"))
    return reading_of_day(move_day(anchor, scene.unit, -scene.count))


def years_ago_month(scene: Scene) -> Reading | None:
    """Three years ago next month."""
    return Reading((months_from(scene.day.year - scene.count, scene.day.month + scene.shift),), "month")


def weekday_ago(scene: Scene) -> Reading | None:
    """Tuesday three weeks ago."""
    return reading_of_day(week_of(scene.day, -scene.count).first + timedelta(scene.value("WEEKDAY")))


def weekday_was(scene: Scene) -> Reading | None:
    """Tuesday was a week, Thursday was a fortnight ago, Friday past a week."""
    if scene.after is not None and scene.after.text in words_beside("lengths"):
        return None
    weekday = scene.value("WEEKDAY")
    last = scene.day if weekday == scene.day.weekday() else scene.last_weekday(weekday)
    return reading_of_day(move_day(last, _unit_of_weeks(scene), -scene.count))


def weekday_week_gone(scene: Scene) -> Reading | None:
    """Saturday week gone, Tuesday fortnight past."""
    return reading_of_day(move_day(scene.last_weekday(scene.value("WEEKDAY")), _unit_of_weeks(scene), -1))


def seasons_ago(scene: Scene) -> Reading | None:
    """Two summers ago, two Christmases ago."""
    year, number = scene.day.year - scene.count, scene.value("SEASONS")
    if number <= 12:
        over = season_of(scene.day.year, number).last < scene.day  # this year's, which may be the first of them
        year -= number == 12 and scene.day.month < 3
        return Reading(tuple(season_of(year + step, number) for step in range(1 + over)), "season")
    days = named_day(number, year)
    return reading_of([days] if days else [], "day")


def weekdays_ago(scene: Scene) -> Reading | None:
    """Two Saturdays ago."""
    return reading_of_day(scene.last_weekday(scene.value("WEEKDAYS")) - timedelta(7 * (scene.count - 1)))


def weekends_ago(scene: Scene) -> Reading | None:
    """Two weekends ago."""
    return Reading((weekend_of(scene.day, -scene.count),), "day")


def this_day_week(scene: Scene) -> Reading | None:
    """This day week, this day fortnight."""
    return reading_of_day(move_day(scene.day, _unit_of_weeks(scene), 1)) if scene.has("this", "today") else None


def _unit_of_weeks(scene: Scene) -> str:
    return "fortnight" if scene.has("fortnight") else "week"


def near_week(scene: Scene) -> Reading | None:
    """A week tomorrow, tomorrow week, today in a week, as Scots say a week the day; yesterday week lies behind."""
    if _is_age(scene):
        return None
    if scene.has("yesterday"):
        return reading_of_day(move_day(scene.day - timedelta(1), _unit_of_weeks(scene), -scene.count))
    if scene.has("in") and scene.tense == "past":
        return None
    if scene.has("the"):
        ends = scene.after is None or scene.after.kind in ".," or scene.after.text in verbs_of("joins")
        return reading_of_day(move_day(scene.day, scene.unit, scene.count)) if ends else None
    return reading_of_day(move_day(scene.day + timedelta(scene.value("NEAR")), _unit_of_weeks(scene), scene.count))


def _is_age(scene: Scene) -> bool:
    """Whether so many weeks will have passed by then: "it'll be six weeks on Friday", "two weeks today since"."""
    passed = scene.after is not None and scene.after.text == "since"
    return passed or (scene.before in ("be", "been") and scene.count > 1)


def near_month(scene: Scene) -> Reading | None:
    """A month today, of what is to come; else the day, as in "three months today and no cigarette"."""
    count = scene.count if scene.tense == "future" and not _is_age(scene) else 0
    return reading_of_day(move_day(scene.day + timedelta(scene.value("NEAR")), "month", count))


def week_yesterday(scene: Scene) -> Reading | None:
    """Three weeks yesterday, of what is past."""
    if scene.tense != "past":
        return None
    return reading_of_day(move_day(scene.day - timedelta(1), _unit_of_weeks(scene), -scene.count))


def weekday_week(scene: Scene) -> Reading | None:
    """Thursday week, Thursday fortnight, Thursday in two weeks."""
    if scene.role == "since":
        return weekday_week_gone(scene)
    if scene.has("in"):
        return week_on_weekday(scene) if scene.tense != "past" else None
    return reading_of_day(move_day(scene.next_weekday(scene.value("WEEKDAY")), _unit_of_weeks(scene), 1))


def week_on_weekday(scene: Scene) -> Reading | None:
    """A week on Friday, two weeks on Monday; "she's thirty weeks on Friday" tells of that Friday."""
    if scene.before in verbs_of("be") and scene.count > _WEEKS_AHEAD:
        return weekday(scene)
    if _is_age(scene):
        return None
    return reading_of_day(move_day(scene.next_weekday(scene.value("WEEKDAY")), _unit_of_weeks(scene), scene.count))


def week_last_weekday(scene: Scene) -> Reading | None:
    """A week last Tuesday, three weeks past Friday."""
    if _is_age(scene):
        return None
    return reading_of_day(move_day(scene.last_weekday(scene.value("WEEKDAY")), _unit_of_weeks(scene), -scene.count))


def weekday_beside(scene: Scene) -> Reading | None:
    """The Friday before last."""
    return reading_of_day(scene.last_weekday(scene.value("WEEKDAY")) - timedelta(7))


def weekday_after_next(scene: Scene) -> Reading | None:
    """The Saturday after next, after next Saturday; not the Monday after next Saturday."""
    if len({weekday.value for weekday in scene.all("WEEKDAY")}) > 1:
        return None
    return reading_of_day(scene.next_weekday(scene.value("WEEKDAY")) + timedelta(7))


def named_beside(scene: Scene) -> Reading | None:
    """The November before last, the Christmas before last, the Easter after next."""
    find, precision = read_name(scene)
    options = occurrences(scene.day, find)
    if scene.has("after"):
        return reading_of([option for option in options if option.first > scene.day][1:2], precision)
    return reading_of([option for option in options if option.last < scene.day][-2:-1], precision)


def after_this(scene: Scene) -> Reading | None:
    """The weekend after this one, the week after this one."""
    if scene.all("WEEKEND"):
        return Reading((weekend_of(scene.day, 1),), "day")
    return Reading((week_of(scene.day, 1),), "week")


def following(scene: Scene) -> Reading | None:
    """The following Monday, the following week, the next day: counted on from the time named last in the text."""
    span = scene.same_text[-1] if scene.same_text else None
    if span is None or len(span.readings) > 1 or span.repeats or span.precision not in ("day", "week"):
        return None
    first, last = span.readings[0]
    if scene.unit == "week":
        return Reading((week_of(last, 1),), "week")
    if span.precision == "week" or first != last:
        return None
    weekday = scene.value_or_none("WEEKDAY")
    return reading_of_day(last + timedelta(1 if weekday is None else (weekday - last.weekday() - 1) % 7 + 1))


def twice_removed(scene: Scene) -> Reading | None:
    """Last to last week, next to next Monday, last last Friday, next Friday but one: two ahead or behind."""
    step = scene.all("LAST", "NEXT")[0].value
    if scene.all("WEEKEND"):
        return Reading((weekend_of(scene.day, 2 * step),), "day")
    if weekdays := scene.all("WEEKDAY"):
        weekday = weekdays[0].value
        near = scene.next_weekday(weekday) if step > 0 else scene.last_weekday(weekday)
        return reading_of_day(near + timedelta(7 * step))
    return shift_by(scene.day, scene.unit, 2 * step) if scene.unit in ("week", "month", "year") else None


def year_last_named(scene: Scene) -> Reading | None:
    """A year last March, two years ago last Easter: so long before the latest one."""
    if _is_age(scene) or not scene.has("year"):
        return None
    named = which_named(scene)
    if named is None:
        return None
    moved = [DateRange(*(move_day(day, "year", -scene.count) for day in days)) for days in named.ranges]
    if scene.all("HOLIDAY"):
        find = partial(named_day, scene.value("HOLIDAY"))
        moved = [days for year in {days.first.year for days in moved} if (days := find(year))]
    return reading_of(moved, named.precision)


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        ago_on, years_ago_month, weekday_ago, weekday_was, weekday_week_gone, weekdays_ago, weekends_ago,
        seasons_ago, this_day_week, near_week, near_month, week_yesterday, weekday_week, week_on_weekday,
        week_last_weekday, weekday_beside, weekday_after_next, named_beside, after_this, following, twice_removed,
        year_last_named,
    )
}  # fmt: skip
