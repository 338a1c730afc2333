"""Rules of English times that write dates in digits: 2019-03-04, 9/11/25, on 9/11, 4/6 to 4/10, on 14.03."""

import re
from collections.abc import Callable, Mapping, Sequence

from localmem.times.days import occurrences, valid_day, valid_days
from localmem.times.english_scene import SOON, Reading, Rule, Scene, reading_of
from localmem.times.english_tense import verbs_of
from localmem.times.english_words import words_beside
from localmem.types import DateRange

_CLEARLY = 3  # how many times as far the other one must be, for a range to be the nearest one
_NEAR = 300  # days to a date in digits that its weekday settles
_PARTS = frozenset({16, 20, 24, 25})  # of which people count some: "9/16 of an inch", "it's 7/20"
_SPAN = 62  # days of the longest range that two dates in digits name


def iso_date(scene: Scene) -> Reading | None:
    """2019-03-04."""
    year, month, day = (int(part) for part in re.split("[-/.]", scene.phrase[0].text))
    return reading_of(valid_days(year, month, day), "day")


def slashed_date(scene: Scene) -> Reading | None:
    """9/11/25, which has two readings where nothing settles the order."""
    first, second, year = (int(part) for part in re.split("[-/.]", scene.phrase[0].text))
    year += 0 if year > 99 else 1900 if year > 60 else 2000
    return _both_orders(scene, first, second, lambda day, month: valid_days(year, month, day))


def slashed_day(scene: Scene) -> Reading | None:
    """On 9/11, of a year by the tense."""
    first, second = _parts_of(scene.phrase[-1].text)
    if (first, second) == (24, 7):
        return None
    return _both_orders(scene, first, second, lambda day, month: _nearest(scene, month, day))


def _parts_of(text: str) -> tuple[int, int]:
    first, second = re.split("[/.]", text)[:2]
    return int(first), int(second)


def padded_day(scene: Scene) -> Reading | None:
    """The MOT is 12/08: only a date has a zero in front."""
    parts = scene.phrase[-1].text.split("/")
    is_date = all(len(part) == 2 for part in parts) and any(part.startswith("0") for part in parts)
    led = scene.before in words_beside("weeks_before")
    return slashed_day(scene) if is_date or led or _is_of_date(scene) else None


def _is_of_date(scene: Scene) -> bool:
    """Whether what is about two numbers makes a date of them: "the exam is 6/12", "6/12 at 9am"."""
    reach = 5 if scene.before in verbs_of("be") else 3  # "our flights to Seoul are 6/3"
    before = {word.text for word in scene.words[max(0, scene.start - reach) : scene.start]}
    following = [word.text for word in scene.words[scene.end : scene.end + 2]]
    at_time = len(following) == 2 and following[0] == "at" and following[1][0].isdigit()
    ends = not following or scene.words[scene.end].kind in ".," or following[0] in words_beside("days_after")
    if at_time or (ends and before & words_beside("dated")):
        return True
    return ends and _is_day_of_month(scene, before)


def _is_day_of_month(scene: Scene, before: set[str]) -> bool:
    """Whether 14/7 can only be a day of July: behind a verb, and no fraction or score has it so, as it may 7/14."""
    first, second = _parts_of(scene.phrase[-1].text)
    if not min(first, second) <= 12 < max(first, second) <= 31:
        return False
    if before & words_beside("events") and second not in _PARTS:
        return True
    if scene.before in words_beside("dates_before") and scene.before not in verbs_of("be"):
        return True
    return scene.before in verbs_of("be") | verbs_of("present") and (first > 12 or second not in _PARTS)


def slashed_weekday(scene: Scene) -> Reading | None:
    """Tuesday 6/12: in the order, and of the year, in which it is a Tuesday."""
    first, second = _parts_of(scene.phrase[-1].text)
    reading = _both_orders(scene, first, second, lambda day, month: _about(scene, month, day))
    weekday = scene.value("WEEKDAY")
    days = [option for option in reading.ranges if option.first.weekday() == weekday] if reading else []
    return reading_of(days, "day")


def _about(scene: Scene, month: int, day: int) -> Sequence[DateRange]:
    options = occurrences(scene.day, lambda year: valid_day(year, month, day), 1)
    return [option for option in options if abs((option.first - scene.day).days) <= _NEAR]


def dotted_day(scene: Scene) -> Reading | None:
    """On 14.03., the day first, as Germans write it."""
    day, month = _parts_of(scene.phrase[-1].text)
    return reading_of(_nearest(scene, month, day), "day") if month <= 12 else None


def slashed_range(scene: Scene) -> Reading | None:
    """4/6 through 4/10: in the order that makes the shorter range, where the other makes none or a long one."""
    (a, b), (c, d) = (_parts_of(word.text) for word in scene.all("FRACTION"))
    orders = {True: (a, b, c, d), False: (b, a, d, c)}
    kept = [scene.day_first] if scene.day_first is not None else [True, False]
    return reading_of(sorted({days for order in kept for days in _ranges_of(scene, *orders[order])}), "day")


def _ranges_of(scene: Scene, day: int, month: int, last_day: int, last_month: int) -> Sequence[DateRange]:
    def find(year: int) -> DateRange | None:
        first = valid_day(year, month, day)
        last = valid_day(year + ((last_month, last_day) < (month, day)), last_month, last_day)
        short = first and last and (last.last - first.first).days <= _SPAN
        return DateRange(first.first, last.last) if first and last and short else None

    if max(month, last_month) > 12:
        return []
    chosen = scene.choose(occurrences(scene.day, find), patience=SOON)
    by_distance = sorted(chosen, key=lambda days: abs((days.first - scene.day).days))
    away = [abs((days.first - scene.day).days) for days in by_distance]
    return by_distance[:1] if len(away) > 1 and away[1] > _CLEARLY * away[0] else chosen


def _nearest(scene: Scene, month: int, day: int) -> Sequence[DateRange]:
    return scene.choose(occurrences(scene.day, lambda year: valid_day(year, month, day)), patience=SOON)


def _both_orders(
    scene: Scene, first: int, second: int, find: Callable[[int, int], Sequence[DateRange]]
) -> Reading | None:
    orders = [(first, second)] if scene.day_first else [(second, first)] if scene.day_first is False else []
    valid = [(day, month) for day, month in orders or [(first, second), (second, first)] if month <= 12]
    return reading_of(sorted({days for day, month in valid for days in find(day, month)}), "day")


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (iso_date, slashed_date, slashed_day, padded_day, slashed_weekday, dotted_day, slashed_range)
}
