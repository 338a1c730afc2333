"""Rules of English times that name days, months, seasons, holidays and years."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta

from localmem.times.days import (
    months_from,
    named_day,
    nth_weekday,
    occurrences,
    one_day,
    season_of,
    valid_day,
    years_from,
)
from localmem.times.english_scene import SOON, Reading, Rule, Scene, reading_of
from localmem.times.english_tense import verbs_of
from localmem.times.english_words import words_beside
from localmem.types import DateRange, Precision

_ROUND = (1900, 1950, 2000, 2050)  # numbers that are seldom years
# Mother's Day in Britain and Ireland, Father's Day in Australia, the bank holiday of August in Ireland
_ELSEWHERE = {3562: 1979, 3663: 3961, 3809: 3801}
_CLAUSE, _JUST_OVER = 10, 60  # words before a day in which a present is spoken of, and days for which it is just over
_CLOSE = 14  # days to the one of two such days that is meant
_PARTS = {1: (1, 10), 2: (11, 20), 3: (21, 31)}  # the days of the early, middle and late month


def choose_year(scene: Scene, find: Callable[[int], DateRange | None], precision: Precision) -> Reading | None:
    """What recurs every year: of the year that is named, else by tense."""
    if scene.year is not None:
        days = find(scene.year)
        return reading_of([days] if days else [], precision)
    remote = scene.tense == "past" and scene.is_remote
    return None if remote else reading_of(scene.choose(occurrences(scene.day, find), patience=SOON), precision)


def day_of_month(scene: Scene) -> Reading | None:
    """The 9th of May, Tuesday 9 May, May 9th, 2025; a weekday must be that day's."""
    month, day = scene.value("MONTH"), scene.day_of_month
    if scene.before == "in" and scene.phrase[0].group == "MONTH" and scene.all("SMALL"):
        return month_with_year(scene) if scene.year is None else None
    weekday = scene.value_or_none("WEEKDAY")

    def find(year: int) -> DateRange | None:
        days = valid_day(year, month, day)
        return days if days and weekday in (None, days.first.weekday()) else None

    if weekday is None or scene.year is not None:
        return choose_year(scene, find, "day")
    about = [option for option in occurrences(scene.day, find, 1) if abs((option.first - scene.day).days) <= 366]
    if len(about) == 1:
        return Reading((about[0],), "day")
    return reading_of(scene.choose(about, patience=SOON), "day")


def month_with_year(scene: Scene) -> Reading | None:
    """In May 97, in Jan 22: the year in two digits, of the last decades."""
    number = sum(word.value for word in scene.all("SMALL", "LARGE"))
    this = scene.day.year % 100
    if number < 10 or (this + 2 < number < 32):
        return None
    year = number + (1900 if number > this + 2 else 2000)
    return Reading((months_from(year, scene.value("MONTH")),), "month")


def year_of_life(scene: Scene) -> Reading | None:
    """Born in 79, the summer of 69: where nothing else is counted."""
    number, follower = scene.all("SMALL", "LARGE")[0].value, scene.after
    ends = follower is None or follower.kind in ".," or follower.text in words_beside("days_after")
    if not ends or not 32 <= number <= 99:
        return None
    if seasons := scene.all("SEASON"):
        return None if scene.has("winter") else Reading((season_of(1900 + number, seasons[0].value),), "season")
    return Reading((years_from(1900 + number),), "year")


def day_of_which_month(scene: Scene) -> Reading | None:
    """Last July 5, this coming 9 May: the latest one, or the coming one."""
    month, day = scene.value("MONTH"), scene.day_of_month
    options = occurrences(scene.day, lambda year: valid_day(year, month, day), 5)
    if scene.has("last", "past"):
        return reading_of([option for option in options if option.first < scene.day][-1:], "day")
    if scene.has("next") and not scene.has("coming"):
        return reading_of(scene.with_tense("future").choose(options, patience=SOON), "day")
    return reading_of([option for option in options if option.first >= scene.day][:1], "day")


def day_range(scene: Scene) -> Reading | None:
    """6 to 10 March, between the 3rd and the 9th of May."""
    first, last = two_days(scene)
    if first >= last or (scene.has("and") and not scene.has("between") and last != first + 1):
        return None
    month = scene.value("MONTH")

    def find(year: int) -> DateRange | None:
        start, end = valid_day(year, month, first), valid_day(year, month, last)
        return DateRange(start.first, end.last) if start and end else None

    return choose_year(scene, find, "day")


def either_day(scene: Scene) -> Reading | None:
    """The 5th or 6th of May: two readings."""
    days, month = two_days(scene), scene.value("MONTH")
    chosen = [choose_year(scene, lambda year, day=day: valid_day(year, month, day), "day") for day in days]  # type: ignore[misc]
    return reading_of(sorted({days for reading in chosen if reading for days in reading.ranges}), "day")


def two_days(scene: Scene) -> tuple[int, int]:
    """The two days of the month that the matched words name."""
    days, tens = [], 0
    for word in scene.all("TENS", "ORDINAL", "SMALL"):
        if word.group == "TENS":
            tens = word.value
        else:
            days.append(tens + word.value)
            tens = 0
    return (days[0], days[1]) if len(days) == 2 else (0, 0)


def nth_weekday_of_month(scene: Scene) -> Reading | None:
    """The first Friday in June, the last weekend of May."""
    month, nth = scene.value("MONTH"), scene.day_of_month or -1
    weekend = bool(scene.all("WEEKEND"))
    weekday = 5 if weekend else scene.value("WEEKDAY")

    def find(year: int) -> DateRange | None:
        days = nth_weekday(year, month, weekday, nth)
        return DateRange(days.first, days.last + timedelta(1)) if days and weekend else days

    return choose_year(scene, find, "day")


def nth_weekday_of_this_month(scene: Scene) -> Reading | None:
    """The second Saturday of next month, the last weekend of this month."""
    month = months_from(scene.day.year, scene.day.month + scene.all("LAST", "THIS", "NEXT")[-1].value).first
    weekend = bool(scene.all("WEEKEND"))
    days = nth_weekday(month.year, month.month, 5 if weekend else scene.value("WEEKDAY"), scene.day_of_month or -1)
    if days is None:
        return None
    return Reading((DateRange(days.first, days.last + timedelta(weekend)),), "day")


def nth_day(scene: Scene) -> Reading | None:
    """The first day of May, the last day of August."""
    month, nth = scene.value("MONTH"), scene.day_of_month

    def find(year: int) -> DateRange | None:
        return valid_day(year, month, nth) if nth else one_day(months_from(year, month).last)

    return choose_year(scene, find, "day")


def back_end(scene: Scene) -> Reading | None:
    """The back end of 1974: September to December."""
    return Reading((months_from(scene.year or scene.day.year, 9, 4),), "season")


def point_of_month(scene: Scene) -> Reading | None:
    """Early March, the end of April 2025."""
    point, month = scene.value("POINT"), scene.value("MONTH")
    return choose_year(scene, lambda year: _part(date(year, month, 1), point), "week")


def _part(month: date, point: int) -> DateRange:
    first, last = _PARTS[point]
    return DateRange(
        month.replace(day=first), min(months_from(month.year, month.month).last, month + timedelta(last - 1))
    )


def point_of_this_month(scene: Scene) -> Reading | None:
    """The end of the month, the start of next month."""
    return _point_about(scene, scene.value("POINT"))


def point_of_month_end(scene: Scene) -> Reading | None:
    """Month end, the end of month, by eom: the last third of this month, or of the one that is named."""
    return _point_about(scene, 3)


def _point_about(scene: Scene, point: int) -> Reading | None:
    shifts = scene.all("LAST", "THIS", "NEXT")
    offsets = [shifts[0].value] if shifts else [-1, 0, 1]
    months = [months_from(scene.day.year, scene.day.month + offset).first for offset in offsets]
    parts = [_part(month, point) for month in months]
    return reading_of(parts if shifts else scene.choose(parts, patience=SOON), "week")


def point_of_year(scene: Scene) -> Reading | None:
    """The start of the year, late 2019: three months each."""
    month = {1: 1, 3: 10}.get(scene.value("POINT"))
    return Reading((months_from(scene.year or scene.day.year, month, 3),), "season") if month else None


def read_name(scene: Scene) -> tuple[Callable[[int], DateRange | None], Precision]:
    """The matched month, season or holiday as what it is in a year."""
    if months := scene.all("MONTH"):
        return lambda year: months_from(year, months[0].value), "month"
    if seasons := scene.all("SEASON"):
        return lambda year: season_of(year, seasons[0].value), "season"
    return lambda year: named_day(scene.value("HOLIDAY"), year), "day"


def named_year(scene: Scene) -> Reading | None:
    """March 2024, spring of next year, Christmas 2019; a winter has two years."""
    find, precision = read_name(scene)
    if scene.has("winter") and scene.year is not None:
        return Reading((season_of(scene.year - 1, 12), season_of(scene.year, 12)), "season")
    return choose_year(scene, find, precision)


def which_named(scene: Scene) -> Reading | None:
    """Last spring, this March, next Christmas."""
    if scene.after is not None and scene.after.text in words_beside("seasons_after"):
        return None
    find, precision = read_name(scene)
    shift = -1 if scene.has("past", "gone") else next(iter(scene.all("LAST", "THIS", "NEXT")), scene.phrase[0]).value
    options = occurrences(scene.day, find)
    ended = [option for option in options if option.last < scene.day]
    this = next((option for option in options if option.first.year == scene.day.year), None)
    holding = [option for option in options if option.first <= scene.day <= option.last]
    if holding and scene.has("gone"):  # "that's the summer gone", in August
        return None
    if shift == -1:
        return reading_of(ended[-1:], precision)
    if shift == 0 and not scene.has("coming"):
        if scene.has("winter") and (holding or scene.tense == "past"):
            return reading_of(holding or ended[-1:], precision)
        return reading_of([this] if this else [], precision)
    coming = [option for option in options if option.first > scene.day]
    if scene.has("coming"):
        return reading_of(coming[:1], precision)
    return reading_of(coming[:2] if this in coming and not holding else coming[:1], precision)


def season(scene: Scene) -> Reading | None:
    """By the spring, over the summer; "in summer" of every year names none."""
    if scene.phrase[0].text in ("after", "before", "from") and scene.phrase[-1].text == "fall":
        return None
    generic = not scene.has("the") and scene.phrase[0].text in ("in", "all", "for", "through")
    follower = scene.after
    if (generic and scene.tense in ("present", "none")) or (
        follower and follower.text in words_beside("seasons_after")
    ):
        return None
    return named_year(scene)


def month(scene: Scene) -> Reading | None:
    """November: of the year by the tense; "he owes me February" is of a past one."""
    find, precision = read_name(scene)
    if any(word.text in verbs_of("owes") for word in scene.words[max(0, scene.start - 4) : scene.start]):
        scene = scene.with_tense("past")
    return None if scene.before in ("a", "an", "the") else choose_year(scene, find, precision)


def holiday(scene: Scene) -> Reading | None:
    """At Christmas, since Easter; not a south-easter, nor a thanksgiving in church."""
    if scene.before == "-" or (scene.has("thanksgiving") and scene.before in ("a", "the")):
        return None
    find, precision = read_name(scene)
    code = scene.value("HOLIDAY")
    if code in _ELSEWHERE and scene.year is None:
        return _choose_country(scene, [find, lambda year: named_day(_ELSEWHERE[code], year)])
    return choose_year(scene.with_tense("past") if _was_given(scene, find) else scene, find, precision)


def _was_given(scene: Scene, find: Callable[[int], DateRange | None]) -> bool:
    """Whether a present was given on the day, as that is just over: "got it for Christmas", in January."""
    given = {word.text for word in scene.words[max(0, scene.start - _CLAUSE) : scene.start]} & verbs_of("gives")
    over = (option for option in occurrences(scene.day, find, 1) if 0 < (scene.day - option.last).days <= _JUST_OVER)
    return scene.before == "for" and bool(given) and any(over)


def _choose_country(scene: Scene, finds: Sequence[Callable[[int], DateRange | None]]) -> Reading | None:
    """A day that countries keep apart: the one that is close, else the one of each country by the tense."""
    readings = [reading for find in finds if (reading := choose_year(scene, find, "day"))]
    days = sorted({days for reading in readings for days in reading.ranges})
    close = [option for option in days if abs((option.first - scene.day).days) <= _CLOSE]
    return reading_of(close if len(close) == 1 else days, "day")


def decade(scene: Scene) -> Reading | None:
    """The eighties, the 1980s, the '80s."""
    word = scene.phrase[-1]
    year = word.value + 1900 if word.group == "SHORT" and word.value > 20 else word.value
    if year <= 1900 or not (scene.has("the") or word.group == "LONG"):
        return None
    return Reading((years_from(year, 10),), "year")


def spoken_year(scene: Scene) -> Reading | None:
    """In twenty twenty-six, since nineteen eighty, in two thousand and eight."""
    century, *rest = [word.value for word in scene.all("TENS", "COUNT")]
    number = sum(rest)
    small = scene.has("thousand", "oh")
    if scene.before not in (*words_beside("years_before"), "for") or not (1 if small else 10) <= number <= 99:
        return None
    return Reading((years_from(century * (1000 if scene.has("thousand") else 100) + number),), "year")


def year(scene: Scene) -> Reading | None:
    """In 1974, from 1974 to 2011, for 2026; a number without such a word may be an amount."""
    number, follower = scene.value("YEAR"), scene.after
    if number > scene.day.year + 50 or (follower and follower.text in words_beside("years_after")):
        return None
    if scene.before in words_beside("years_before"):
        sure = number not in _ROUND or scene.before in ("in", "since", "year")
    else:
        sure = _is_beside_year(scene) or (scene.before == "for" and abs(number - scene.day.year) <= 2)
        sure = sure or _stands_alone(scene)
    return Reading((years_from(number),), "year") if sure else None


def _stands_alone(scene: Scene) -> bool:
    """Whether a past year is all that stands between two signs: "bar once, 2009, two brothers"."""
    number, start = scene.value("YEAR"), scene.start
    if not start or scene.words[start - 1].kind not in ".," or number in _ROUND or number > scene.day.year:
        return False
    amounts = any(word.text in words_beside("not_years") for word in scene.words[max(0, start - 6) : start])
    return not amounts and (scene.after is None or scene.after.kind in ".,")


def _is_beside_year(scene: Scene) -> bool:
    """Whether another year is the other end of a range: "1974 to 2011"."""
    start, end, words = scene.start, scene.end, scene.words
    pairs = [words[start - 2 : start][::-1], words[end : end + 2]]
    return any(
        len(pair) == 2 and (pair[0].text in ("to", "and") or pair[0].kind == "-") and pair[1].group == "YEAR"
        for pair in pairs
    )


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        day_of_month, day_of_which_month, month_with_year, year_of_life, day_range, either_day,
        nth_weekday_of_month, nth_weekday_of_this_month, nth_day, back_end, point_of_month, point_of_this_month,
        point_of_month_end, point_of_year,
        named_year, which_named, season, month, holiday, decade, spoken_year, year,
    )
}  # fmt: skip
