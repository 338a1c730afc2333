"""Rules of English times that name days, months, seasons, holidays and years."""

import re
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
from localmem.times.english_scene import Reading, Rule, Scene
from localmem.times.english_words import words_beside
from localmem.types import DateRange, Precision, TimeSpan

_SOON = 240  # days within which a date of the year without a verb is the coming one
_SHORT = 12  # words of a reply that needs no month
_BRIEF = 5  # words of a clause that says little but a day
_ELSEWHERE = 60  # days to a month that was named long before, for a ninth to be the nearest one
_ROUND = (1900, 1950, 2000, 2050)  # numbers that are seldom years
_PARTS = {1: (1, 10), 2: (11, 20), 3: (21, 31)}  # the days of the early, middle and late month


def _reading(ranges: Sequence[DateRange], precision: Precision) -> Reading | None:
    return Reading(tuple(ranges), precision) if ranges else None


def _choose_year(scene: Scene, find: Callable[[int], DateRange | None], precision: Precision) -> Reading | None:
    """What recurs every year: of the year that is named, else by tense."""
    if scene.year is not None:
        found = find(scene.year)
        return _reading([found] if found else [], precision)
    remote = scene.tense == "past" and scene.is_remote
    return None if remote else _reading(scene.choose(occurrences(scene.day, find), patience=_SOON), precision)


def iso_date(scene: Scene) -> Reading | None:
    """2019-03-04."""
    year, month, day = (int(part) for part in re.split("[-/.]", scene.phrase[0].text))
    found = valid_day(year, month, day)
    return _reading([found] if found else [], "day")


def slashed_date(scene: Scene) -> Reading | None:
    """9/11/25, which has two readings where nothing settles the order."""
    first, second, year = (int(part) for part in re.split("[-/.]", scene.phrase[0].text))
    year += 0 if year > 99 else 1900 if year > 60 else 2000
    return _both_orders(scene, first, second, lambda day, month: valid_day(year, month, day))


def slashed_day(scene: Scene) -> Reading | None:
    """On 9/11, of a year by the tense."""
    first, second = (int(part) for part in scene.phrase[-1].text.split("/"))
    if (first, second) == (24, 7):
        return None
    return _both_orders(scene, first, second, lambda day, month: _only(_nearest(scene, month, day)))


def _only(ranges: Sequence[DateRange]) -> DateRange | None:
    return ranges[0] if len(ranges) == 1 else None


def _nearest(scene: Scene, month: int, day: int) -> Sequence[DateRange]:
    return scene.choose(occurrences(scene.day, lambda year: valid_day(year, month, day)), patience=_SOON)


def _both_orders(scene: Scene, first: int, second: int, find: Callable[[int, int], DateRange | None]) -> Reading | None:
    orders = [(first, second)] if scene.day_first else [(second, first)] if scene.day_first is False else []
    valid = [(day, month) for day, month in orders or [(first, second), (second, first)] if month <= 12]
    return _reading(sorted({found for day, month in valid if (found := find(day, month))}), "day")


def day_of_month(scene: Scene) -> Reading | None:
    """The 9th of May, Tuesday 9 May, May 9th, 2025; a weekday must be that day's."""
    month, day = scene.value("MONTH"), scene.day_of_month
    if scene.before == "in" and scene.phrase[0].group == "MONTH" and scene.all("SMALL"):
        return None
    weekday = scene.value_or_none("WEEKDAY")

    def find(year: int) -> DateRange | None:
        found = valid_day(year, month, day)
        return found if found and weekday in (None, found.first.weekday()) else None

    if weekday is None or scene.year is not None:
        return _choose_year(scene, find, "day")
    about = [option for option in occurrences(scene.day, find, 1) if abs((option.first - scene.day).days) <= 366]
    if len(about) == 1:
        return Reading((about[0],), "day")
    return _reading(scene.choose(about, patience=_SOON), "day")


def day_range(scene: Scene) -> Reading | None:
    """6 to 10 March, between the 3rd and the 9th of May."""
    first, last = _two_days(scene)
    if first >= last or (scene.has("and") and not scene.has("between") and last != first + 1):
        return None
    month = scene.value("MONTH")

    def find(year: int) -> DateRange | None:
        start, end = valid_day(year, month, first), valid_day(year, month, last)
        return DateRange(start.first, end.last) if start and end else None

    return _choose_year(scene, find, "day")


def either_day(scene: Scene) -> Reading | None:
    """The 5th or 6th of May: two readings."""
    days, month = _two_days(scene), scene.value("MONTH")
    chosen = [_choose_year(scene, lambda year, day=day: valid_day(year, month, day), "day") for day in days]  # type: ignore[misc]
    return _reading(sorted({days for reading in chosen if reading for days in reading.ranges}), "day")


def _two_days(scene: Scene) -> tuple[int, int]:
    days, tens = [], 0
    for word in scene.all("TENS", "ORDINAL", "SMALL"):
        if word.group == "TENS":
            tens = word.value
        else:
            days.append(tens + word.value)
            tens = 0
    return (days[0], days[1]) if len(days) == 2 else (0, 0)


def _month_days(scene: Scene, day: int, months: int) -> list[DateRange]:
    """A day of the month in the months about the day's."""
    around = (months_from(scene.day.year, scene.day.month + offset).first for offset in range(-months, months + 1))
    return [found for month in around if (found := valid_day(month.year, month.month, day))]


def day_of_this_month(scene: Scene) -> Reading | None:
    """The 8th of this month, of next month; the 1st of the month."""
    shifts = scene.all("LAST", "THIS", "NEXT")
    if not shifts:
        return _reading(scene.choose(_month_days(scene, scene.day_of_month, 2), patience=0), "day")
    month = months_from(scene.day.year, scene.day.month + shifts[0].value).first
    found = valid_day(month.year, month.month, scene.day_of_month)
    return _reading([found] if found else [], "day")


def weekday_and_day(scene: Scene) -> Reading | None:
    """Friday the 14th: of the nearest month where the 14th is a Friday."""
    weekday = scene.value("WEEKDAY")
    days = [option for option in _month_days(scene, scene.day_of_month, 7) if option.first.weekday() == weekday]
    if (named := _by_context(scene)) is not None and named in days:
        return Reading((named,), "day")
    return _reading(scene.choose(days, patience=_SOON), "day")


def bare_day(scene: Scene) -> Reading | None:
    """The 21st: of the month that was named before, else by the tense."""
    digits = scene.phrase[-1].name == "NTH"
    follower = scene.after
    ends = follower is None or follower.kind in ".,-/"
    if not digits and (not ends or scene.before not in words_beside("days_before") or not scene.has("the")):
        return None
    if not scene.has("the") and scene.before not in words_beside("days_before"):
        return None
    if not ends and follower is not None and not _may_follow_day(follower.text, scene.before):
        return None
    if (same := _repeat_of_last(scene)) is not None:
        return Reading((same,), "day")
    days = _month_days(scene, scene.day_of_month, 2)
    if follower is not None and follower.text in ("was", "were"):  # "the 20th was a mistake" may lie ahead
        scene = scene.with_tense("unclear")
    nearest = scene.choose(days, patience=0)
    named = _by_context(scene)
    if named is None or named in nearest:
        return _reading(nearest if named is None else [named], "day")
    against = scene.day > named.last if scene.tense == "future" else scene.day < named.first
    far = abs((named.first - scene.day).days) > _ELSEWHERE and not _is_close(scene)
    if far or (scene.tense in ("past", "future") and against):
        return _reading(nearest, "day")
    return _reading([named] if _is_close(scene) else sorted({named, *nearest}), "day")


def bare_number(scene: Scene) -> Reading | None:
    """On the 10, at the end of a sentence, as people write whose own language has "the 10."."""
    ends = scene.after is None or scene.after.text.strip().startswith(".")
    if not ends or scene.before not in words_beside("days_before"):
        return None
    return _reading(scene.choose(_month_days(scene, scene.day_of_month, 2), patience=0), "day")


def _may_follow_day(text: str, before: str) -> bool:
    """Whether a word may stand behind "the 21st": not "floor", and a noun only after a preposition."""
    if "'" in text or text in words_beside("days_after"):
        return True
    return before in words_beside("days_before") and text not in words_beside("counted")


def _repeat_of_last(scene: Scene) -> DateRange | None:
    """The day named last in this text where this is its number: "Monday last, the 15th"."""
    for span in scene.same_text[-1:]:
        days = span.readings[0]
        if (
            len(span.readings) == 1
            and not span.repeats
            and days.first == days.last
            and days.first.day == scene.day_of_month
        ):
            return days
    return None


def _month_spans(spans: Sequence[TimeSpan]) -> list[TimeSpan]:
    """The spans that name a month."""
    names = words_beside("month_names")
    return [
        span
        for span in spans
        if len(span.readings) == 1 and not span.repeats and names & set(span.words.lower().replace("-", " ").split())
    ]


def _by_context(scene: Scene) -> DateRange | None:
    """The day in the month that was named last."""
    spans = _month_spans([*scene.named, *scene.same_text])
    first = spans[-1].readings[0].first if spans else None
    return valid_day(first.year, first.month, scene.day_of_month) if first else None


def _is_close(scene: Scene) -> bool:
    """Whether the month was named in the same sentence, or just before a short reply."""
    spans = _month_spans(scene.same_text)
    if spans:
        at = scene.words[scene.start].start
        return not any(word.kind == "." for word in scene.words if spans[-1].at < word.start < at)
    words = len(scene.words)
    is_reply = words <= _SHORT or (words <= 2 * _SHORT and _clause_length(scene) <= _BRIEF)
    return is_reply and bool(_month_spans(scene.named[-1:]))


def _clause_length(scene: Scene) -> int:
    """The words between the signs about the match."""
    start, end, words = scene.start, scene.end, scene.words
    while start and words[start - 1].kind not in ".,":
        start -= 1
    while end < len(words) and words[end].kind not in ".,":
        end += 1
    return end - start


def nth_weekday_of_month(scene: Scene) -> Reading | None:
    """The first Friday in June, the last weekend of May."""
    month, nth = scene.value("MONTH"), scene.day_of_month or -1
    weekend = bool(scene.all("WEEKEND"))
    weekday = 5 if weekend else scene.value("WEEKDAY")

    def find(year: int) -> DateRange | None:
        found = nth_weekday(year, month, weekday, nth)
        return DateRange(found.first, found.last + timedelta(1)) if found and weekend else found

    return _choose_year(scene, find, "day")


def nth_day(scene: Scene) -> Reading | None:
    """The first day of May, the last day of August."""
    month, nth = scene.value("MONTH"), scene.day_of_month

    def find(year: int) -> DateRange | None:
        return valid_day(year, month, nth) if nth else one_day(months_from(year, month).last)

    return _choose_year(scene, find, "day")


def back_end(scene: Scene) -> Reading | None:
    """The back end of 1974: September to December."""
    return Reading((months_from(scene.year or scene.day.year, 9, 4),), "season")


def point_of_month(scene: Scene) -> Reading | None:
    """Early March, the end of April 2025."""
    point, month = scene.value("POINT"), scene.value("MONTH")
    return _choose_year(scene, lambda year: _part(date(year, month, 1), point), "week")


def _part(month: date, point: int) -> DateRange:
    first, last = _PARTS[point]
    return DateRange(
        month.replace(day=first), min(months_from(month.year, month.month).last, month + timedelta(last - 1))
    )


def point_of_this_month(scene: Scene) -> Reading | None:
    """The end of the month, the start of next month."""
    point, shifts = scene.value("POINT"), scene.all("LAST", "THIS", "NEXT")
    offsets = [shifts[0].value] if shifts else [-1, 0, 1]
    months = [months_from(scene.day.year, scene.day.month + offset).first for offset in offsets]
    parts = [_part(month, point) for month in months]
    return _reading(parts if shifts else scene.choose(parts, patience=_SOON), "week")


def point_of_year(scene: Scene) -> Reading | None:
    """The start of the year, late 2019: three months each."""
    month = {1: 1, 3: 10}.get(scene.value("POINT"))
    return Reading((months_from(scene.year or scene.day.year, month, 3),), "season") if month else None


def _read_name(scene: Scene) -> tuple[Callable[[int], DateRange | None], Precision]:
    """The matched month, season or holiday as what it is in a year."""
    if months := scene.all("MONTH"):
        return lambda year: months_from(year, months[0].value), "month"
    if seasons := scene.all("SEASON"):
        return lambda year: season_of(year, seasons[0].value), "season"
    return lambda year: named_day(scene.value("HOLIDAY"), year), "day"


def named_year(scene: Scene) -> Reading | None:
    """March 2024, spring of next year, Christmas 2019; a winter has two years."""
    find, precision = _read_name(scene)
    if scene.has("winter") and scene.year is not None:
        return Reading((season_of(scene.year - 1, 12), season_of(scene.year, 12)), "season")
    return _choose_year(scene, find, precision)


def which_named(scene: Scene) -> Reading | None:
    """Last spring, this March, next Christmas."""
    if scene.after is not None and scene.after.text in words_beside("seasons_after"):
        return None
    find, precision = _read_name(scene)
    shift = -1 if scene.has("past", "gone") else next(iter(scene.all("LAST", "THIS", "NEXT")), scene.phrase[0]).value
    options = occurrences(scene.day, find)
    ended = [option for option in options if option.last < scene.day]
    if shift == -1:
        return _reading(ended[-1:], precision)
    this = next((option for option in options if option.first.year == scene.day.year), None)
    holding = [option for option in options if option.first <= scene.day <= option.last]
    if shift == 0 and not scene.has("coming"):
        if scene.has("winter") and (holding or scene.tense == "past"):
            return _reading(holding or ended[-1:], precision)
        return _reading([this] if this else [], precision)
    coming = [option for option in options if option.first > scene.day]
    if scene.has("coming"):
        return _reading(coming[:1], precision)
    return _reading(coming[:2] if this in coming and not holding else coming[:1], precision)


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
    """November: of the year by the tense."""
    find, precision = _read_name(scene)
    return None if scene.before in ("a", "an", "the") else _choose_year(scene, find, precision)


def holiday(scene: Scene) -> Reading | None:
    """At Christmas, since Easter; not a south-easter."""
    if scene.before == "-":
        return None
    find, precision = _read_name(scene)
    return _choose_year(scene, find, precision)


def decade(scene: Scene) -> Reading | None:
    """The eighties, the 1980s, the '80s."""
    word = scene.phrase[-1]
    year = word.value + 1900 if word.group == "SHORT" and word.value > 20 else word.value
    if year <= 1900 or not (scene.has("the") or word.group == "LONG"):
        return None
    return Reading((years_from(year, 10),), "year")


def spoken_year(scene: Scene) -> Reading | None:
    """In twenty twenty-six, since nineteen eighty."""
    century, *rest = [word.value for word in scene.all("TENS", "COUNT")]
    number = sum(rest)
    if scene.before not in (*words_beside("years_before"), "for") or not 10 <= number <= 99:
        return None
    return Reading((years_from(century * 100 + number),), "year")


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
        iso_date, slashed_date, slashed_day, day_of_month, day_range, either_day, day_of_this_month, weekday_and_day,
        bare_day, bare_number, nth_weekday_of_month, nth_day, back_end, point_of_month, point_of_this_month, point_of_year,
        named_year, which_named, season, month, holiday, decade, spoken_year, year,
    )
}  # fmt: skip
