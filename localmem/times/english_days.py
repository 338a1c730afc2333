"""Rules of English times that name a day and not its month: the 9th, Friday the 14th, the 1st of the month."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from localmem.times.days import months_from, occurrences, valid_day
from localmem.times.english_recurring import monthly_day
from localmem.times.english_scene import SOON, Reading, Rule, Scene, reading_of
from localmem.times.english_tense import find_earlier_tense, is_moved
from localmem.times.english_weekdays import weekday
from localmem.times.english_words import words_beside
from localmem.types import DateRange, TimeSpan

_SHORT = 12  # words of a reply that needs no month
_LIST = 10  # words in which a list of days names its month
_PARTS_OF_DAY = frozenset({"night", "morning", "evening", "afternoon"})  # "on 25th night"
_HOURS = 12
_COUNTED = 3  # up to which an ordinal number may well count something else
_BRIEF = 5  # words of a clause that says little but a day
_HABIT = 8  # words in which "always" stands before a day
_ELSEWHERE = 60  # days to a month that was named long before, for a ninth to be the nearest one


def _month_days(scene: Scene, day: int, months: int) -> list[DateRange]:
    """A day of the month in the months about the day's."""
    around = (months_from(scene.day.year, scene.day.month + offset).first for offset in range(-months, months + 1))
    return [found for month in around if (found := valid_day(month.year, month.month, day))]


def day_of_this_month(scene: Scene) -> Reading | None:
    """The 8th of this month, of next month; the 1st of the month."""
    shifts = scene.all("LAST", "THIS", "NEXT")
    if not shifts:
        return reading_of(scene.choose(_month_days(scene, scene.day_of_month, 2), patience=0), "day")
    month = months_from(scene.day.year, scene.day.month + shifts[0].value).first
    found = valid_day(month.year, month.month, scene.day_of_month)
    return reading_of([found] if found else [], "day")


def weekday_and_day(scene: Scene) -> Reading | None:
    """Friday the 14th: of the nearest month where the 14th is a Friday."""
    weekday = scene.value("WEEKDAY")
    days = [option for option in _month_days(scene, scene.day_of_month, 7) if option.first.weekday() == weekday]
    if (named := _by_context(scene)) is not None and named in days:
        return Reading((named,), "day")
    return reading_of(scene.choose(days, patience=SOON), "day")


def bare_day(scene: Scene) -> Reading | None:
    """The 21st: of the month that was named before, else by the tense."""
    if not _is_day(scene):
        return None
    if _is_habit(scene):
        return monthly_day(scene)
    if month := _month_of_list(scene):
        options = occurrences(scene.day, lambda year: valid_day(year, month, scene.day_of_month))
        return reading_of(scene.choose(options, patience=SOON), "day")
    if (same := _repeat_of_last(scene)) is not None:
        return Reading((same,), "day")
    if open_days := _in_open_months(scene):
        return reading_of(open_days, "day")
    return _by_tense(scene)


def _is_habit(scene: Scene) -> bool:
    """Whether something always happens on that day: "he always pays on the 5th"."""
    before = scene.words[max(0, scene.start - _HABIT) : scene.start]
    clause = takewhile(lambda word: word.kind not in ".," and word.text not in ("and", "but"), reversed(before))
    is_habit = any(word.text in words_beside("habits") for word in clause)
    return is_habit and scene.before in ("on", "by") and scene.tense != "past"


def weekday_and_number(scene: Scene) -> Reading | None:
    """Saturday 25, where that is a Saturday and no hour; else the Saturday."""
    alone = replace(scene, end=scene.end - 1)
    ends = scene.after is None or scene.after.kind in ".,-/" or _may_follow_day(scene.after.text, "")
    reading = weekday_and_day(scene) if ends and scene.day_of_month > _HOURS else None
    near = reading is not None and all(abs((days.first - scene.day).days) <= _ELSEWHERE for days in reading.ranges)
    return reading if near else weekday(alone)


def bare_range(scene: Scene) -> Reading | None:
    """From the 10th to the 16th, where no month was named and nothing was moved."""
    first, last = (word.value for word in scene.all("ORDINAL"))
    follower = scene.after
    ends = follower is None or follower.kind in ".,-/" or _may_follow_day(follower.text, "")
    if not ends or _by_context(scene) or _month_of_list(scene) or is_moved(scene.words, scene.start):
        return None
    months = (months_from(scene.day.year, scene.day.month + offset).first for offset in range(-2, 3))
    options = []
    for month in months:
        end = months_from(month.year, month.month + (last <= first)).first
        start, stop = valid_day(month.year, month.month, first), valid_day(end.year, end.month, last)
        if start and stop:
            options.append(DateRange(start.first, stop.last))
    return reading_of(_of_plans(scene).choose(options, patience=0), "day")


def _of_plans(scene: Scene) -> Scene:
    """The scene of what is to come where no verb is in the text: who tells without any tells of what is fixed."""
    alone = scene.before in ("", ".", "not")
    if scene.tense == "none" and not alone and find_earlier_tense(scene.words, len(scene.words)) == "none":
        return scene.with_tense("future")
    return scene


def _is_day(scene: Scene) -> bool:
    """Whether an ordinal number is a day: "on the 21st", "closes 24th"; of words, "on the tenth" where it ends so."""
    follower, leads, number = scene.after, words_beside("days_before"), scene.day_of_month
    ends = follower is None or follower.kind in ".,-/"
    if scene.phrase[-1].name != "NTH":
        ends = ends or (number > _COUNTED and follower is not None and follower.text in words_beside("ordinals_after"))
        return ends and scene.before in leads | words_beside("corrections") and scene.has("the")
    if _month_of_list(scene):
        return True
    if follower is not None and scene.before == "on" and not scene.has("the") and follower.name in _PARTS_OF_DAY:
        return True
    of_week = scene.before == "of" and scene.start > 1 and scene.words[scene.start - 2].group in ("WEEKEND", "UNIT")
    if not (scene.has("the") or of_week or scene.before in leads or _is_end_of_range(scene)):
        return ends and number > _COUNTED and scene.before in words_beside("schedules")
    return ends or (follower is not None and _may_follow_day(follower.text, scene.before))


def _by_tense(scene: Scene) -> Reading | None:
    """The day of the month that was named, of the nearest one that the tense allows, or of both."""
    follower = scene.after
    days = _month_days(scene, scene.day_of_month, 2)
    if follower is not None and follower.text in ("was", "were"):  # "the 20th was a mistake" may lie ahead
        scene = scene.with_tense("unclear")
    scene = _of_plans(scene)
    nearest = scene.choose(days, patience=0)
    named = _by_context(scene)
    if named is None or named in nearest:
        return reading_of(nearest if named is None else [named], "day")
    against = scene.day > named.last if scene.tense == "future" else scene.day < named.first
    far = abs((named.first - scene.day).days) > _ELSEWHERE and not _is_close(scene)
    if far or (scene.tense in ("past", "future") and against):
        return reading_of(nearest, "day")
    return reading_of([named] if _is_close(scene) else sorted({named, *nearest}), "day")


def _month_of_list(scene: Scene) -> int | None:
    """The month that ends a list of days: "the 3rd, 4th and 10th of June"."""
    for index in range(scene.end, min(scene.end + _LIST, len(scene.words))):
        word = scene.words[index]
        if word.group == "MONTH":
            return word.value if index > scene.end + 1 else None
        if word.name != "NTH" and word.text.strip() not in (",", "and", "the", "of", "/", "or", "on"):
            return None
    return None


def _is_end_of_range(scene: Scene) -> bool:
    """Whether it is one of two days of the month: "between 15th and 20th", "15th to 20th"."""
    after, before = scene.words[scene.end : scene.end + 2], scene.words[max(0, scene.start - 2) : scene.start][::-1]
    pairs = [after, before]
    return any(
        len(pair) == 2 and pair[1].name == "NTH" and pair[0].text in ("to", "and", "-", "till", "through", "or")
        for pair in pairs
    )


def this_day(scene: Scene) -> Reading | None:
    """This coming 25th, on this 15th: the next one."""
    ends = scene.after is None or scene.after.kind in ".,-/" or _may_follow_day(scene.after.text, "")
    if not ends or not (scene.has("coming") or scene.before in words_beside("days_before")):
        return None
    days = [option for option in _month_days(scene, scene.day_of_month, 2) if option.first >= scene.day]
    return reading_of(days[:1], "day")


def _in_open_months(scene: Scene) -> list[DateRange]:
    """The day in each of the months that the last day without a month may be of: "not the 20th; the 27th now"."""
    last = [*scene.named, *scene.same_text][-1:]
    if not last or len(last[0].readings) == 1 or not _is_bare_day(last[0]):
        return []
    months = [days.first for days in last[0].readings]
    return [days for month in months if (days := valid_day(month.year, month.month, scene.day_of_month))]


def _is_bare_day(span: TimeSpan) -> bool:
    same_day = len({days.first.day for days in span.readings}) == 1
    return same_day and span.words[-3:-2].isdigit() and span.words.split()[-1][:-2].isdigit()


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


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (day_of_this_month, weekday_and_day, weekday_and_number, bare_range, bare_day, this_day)
}
