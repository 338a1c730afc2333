"""Rules of English times that count from the day: ago, in three weeks, last Friday, this month, for six weeks."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from localmem.times.days import add_months, months_from, one_day, season_of, week_of, weekend_of, years_from
from localmem.times.english_scene import Reading, Rule, Scene
from localmem.times.english_tense import Tense, find_earlier_tense, verbs_of
from localmem.times.english_words import Word
from localmem.types import DateRange, Precision

_SHIFTS = ("LAST", "THIS", "NEXT")


def _day(day: date) -> Reading:
    return Reading((one_day(day),), "day")


def _days(*days: date) -> Reading:
    return Reading(tuple(one_day(day) for day in sorted(days)), "day")


def _shift(day: date, unit: str, count: int) -> Reading | None:
    """The unit of the calendar `count` units from a day: "three weeks ago" is a week, "ten days ago" a day."""
    if unit == "week":
        return Reading((week_of(day, count),), "week")
    if unit == "month":
        return Reading((months_from(day.year, day.month + count),), "month")
    if unit == "year":
        return Reading((years_from(day.year + count),), "year")
    if unit == "decade":
        return None
    return _day(day + timedelta(count * (14 if unit == "fortnight" else 1)))


def move_day(day: date, unit: str, count: int) -> date:
    """The day that lies `count` units from a day."""
    if unit in ("month", "year", "decade"):
        return add_months(day, count * {"month": 1, "year": 12, "decade": 120}[unit])
    return day + timedelta(count * {"week": 7, "fortnight": 14}.get(unit, 1))


def ago(scene: Scene) -> Reading | None:
    """Three weeks ago."""
    return _shift(scene.day, scene.unit, -scene.count)


def back(scene: Scene) -> Reading | None:
    """Three weeks back, with a verb in the past."""
    return ago(scene) if scene.tense == "past" and scene.unit != "day" else None


def hence(scene: Scene) -> Reading | None:
    """Three weeks from now."""
    return _shift(scene.day, scene.unit, scene.count)


def in_time(scene: Scene) -> Reading | None:
    """In three weeks; not "lost it in three weeks", nor "the first time in a month"."""
    if scene.verb[1] and scene.tense in ("past", "unclear"):
        return None
    earlier, _ = _clause(scene)
    if any(word.text in verbs_of("frequency") for word in earlier[-8:]):
        return None
    counted = bool(earlier) and earlier[-1].group in ("COUNT", "TENS", "SMALL", "LARGE")
    if counted and (
        len(earlier) < 2 or earlier[-2].text.strip() not in verbs_of("ages")
    ):  # "from 34 to 63 in three months"
        return None
    vague = bool(scene.all("ARTICLE")) and not scene.has("time", "fortnight")
    if vague and scene.tense != "future" and scene.start and scene.words[scene.start - 1].kind != ".":
        return None
    return hence(scene)


def ago_on(scene: Scene) -> Reading | None:
    """A year ago today, two years ago this Saturday, a week ago Friday."""
    if near := scene.all("NEAR"):
        anchor = scene.day + timedelta(near[0].value)
    elif scene.has("this"):
        anchor = scene.day + timedelta((scene.value("WEEKDAY") - scene.day.weekday()) % 7)
    else:
        anchor = scene.last_weekday(scene.value("WEEKDAY"))
    return _day(move_day(anchor, scene.unit, -scene.count))


def years_ago_month(scene: Scene) -> Reading | None:
    """Three years ago next month."""
    return Reading((months_from(scene.day.year - scene.count, scene.day.month + _shift_of(scene)),), "month")


def weekday_ago(scene: Scene) -> Reading | None:
    """Tuesday three weeks ago."""
    return _day(week_of(scene.day, -scene.count).first + timedelta(scene.value("WEEKDAY")))


def weekdays_ago(scene: Scene) -> Reading | None:
    """Two Saturdays ago."""
    return _day(scene.last_weekday(scene.value("WEEKDAYS")) - timedelta(7 * (scene.count - 1)))


def this_day_week(scene: Scene) -> Reading | None:
    """This day week, this day fortnight."""
    return _day(move_day(scene.day, _unit_of_weeks(scene), 1)) if scene.has("this", "today") else None


def _unit_of_weeks(scene: Scene) -> str:
    return "fortnight" if scene.has("fortnight") else "week"


def near_week(scene: Scene) -> Reading | None:
    """A week tomorrow, tomorrow week, three weeks today."""
    if _is_age(scene):
        return None
    return _day(move_day(scene.day + timedelta(scene.value("NEAR")), _unit_of_weeks(scene), scene.count))


def _is_age(scene: Scene) -> bool:
    """Whether so many weeks will have passed by then: "it'll be six weeks on Friday", "two weeks today since"."""
    passed = scene.after is not None and scene.after.text == "since"
    return passed or (scene.before in ("be", "been") and scene.count > 1)


def near_month(scene: Scene) -> Reading | None:
    """A month today, of what is to come; else the day, as in "three months today and no cigarette"."""
    count = scene.count if scene.tense == "future" and not _is_age(scene) else 0
    return _day(move_day(scene.day + timedelta(scene.value("NEAR")), "month", count))


def week_yesterday(scene: Scene) -> Reading | None:
    """Three weeks yesterday, of what is past."""
    if scene.tense != "past":
        return None
    return _day(move_day(scene.day - timedelta(1), _unit_of_weeks(scene), -scene.count))


def weekday_week(scene: Scene) -> Reading | None:
    """Thursday week, Thursday fortnight."""
    return _day(move_day(scene.next_weekday(scene.value("WEEKDAY")), _unit_of_weeks(scene), 1))


def week_on_weekday(scene: Scene) -> Reading | None:
    """A week on Friday, two weeks on Monday."""
    if _is_age(scene):
        return None
    return _day(move_day(scene.next_weekday(scene.value("WEEKDAY")), _unit_of_weeks(scene), scene.count))


def week_last_weekday(scene: Scene) -> Reading | None:
    """A week last Tuesday."""
    return _day(move_day(scene.last_weekday(scene.value("WEEKDAY")), _unit_of_weeks(scene), -1))


def lasting(scene: Scene) -> Reading | None:
    """For six weeks, where the verb says whether they are past or begin now, and no other time is near."""
    before, after = _clause(scene)
    if any(word.group in _OTHER_TIMES for word in (*before, *after)):
        return None
    texts = [word.text for word in before]
    unit = scene.unit
    if _is_perfect(texts):
        first, last = move_day(scene.day, unit, -scene.count), scene.day
    elif scene.tense in ("present", "future") and _begins_now(texts):
        first, last = scene.day, move_day(scene.day, unit, scene.count)
    else:
        return None
    return Reading((DateRange(first, last),), _PRECISIONS.get(unit, "day"), role="for")


_OTHER_TIMES = frozenset({"MONTH", "WEEKDAY", "WEEKDAYS", "NEAR", "SEASON", "HOLIDAY", "YEAR", "ORDINAL"})
_PRECISIONS: Mapping[str, Precision] = {"week": "week", "month": "month", "year": "year", "decade": "year"}


def _clause(scene: Scene) -> tuple[Sequence[Word], Sequence[Word]]:
    """The words of the sentence before and after the match."""
    start, end = scene.start, scene.end
    while start and scene.words[start - 1].kind != ".":
        start -= 1
    while end < len(scene.words) and scene.words[end].kind != ".":
        end += 1
    return scene.words[start : scene.start], scene.words[scene.end : end]


def _is_perfect(texts: Sequence[str]) -> bool:
    """Whether the last verb is "has been", "I've worked"."""
    have, participles = verbs_of("have"), verbs_of("past")
    for index in range(len(texts) - 1, -1, -1):
        if texts[index] in ("was", "were", "did", "had", "will") or texts[index].endswith("'ll"):
            return False
        if texts[index] in have or texts[index].endswith("'ve"):
            return any(text in participles or text.endswith("ed") for text in texts[index + 1 : index + 5])
    return False


def _begins_now(texts: Sequence[str]) -> bool:
    """Whether somebody is, or will be, away, out, staying: what lasts from now on."""
    be = verbs_of("be")
    for index, text in enumerate(texts[:-1]):
        following = texts[index + 1]
        is_verb = text in be or text.endswith(("'s", "'re", "'m")) or (text == "be" and "will" in texts[:index])
        if is_verb and (following in verbs_of("away") or following.endswith("ing")):
            return True
    return False


def unit_beside(scene: Scene) -> Reading | None:
    """The week after next, the year before last, the weekend after next."""
    shift = scene.value_or_none("NEXT") or 0
    count = 2 if shift else -2
    if scene.has("after") != bool(shift):
        return None
    if scene.all("WEEKEND"):
        return Reading((weekend_of(scene.day, count),), "day")
    if seasons := scene.all("SEASON"):
        ended = [season_of(scene.day.year - ago, seasons[0].value) for ago in range(4)]
        return None if shift else Reading(([season for season in ended if season.last < scene.day][1],), "season")
    return _shift(scene.day, scene.unit, count)


def which_unit(scene: Scene) -> Reading | None:
    """This week, next month, last year."""
    return _shift(scene.day, scene.unit, _shift_of(scene))


def _shift_of(scene: Scene) -> int:
    return scene.all(*_SHIFTS)[0].value


def near(scene: Scene) -> Reading | None:
    """Today, tomorrow, yesterday morning, this afternoon."""
    return _day(scene.day + timedelta(scene.value_or_none("NEAR") or 0))


def last_night(scene: Scene) -> Reading | None:
    """Last night; "next night" and "this night" say nothing sure."""
    return _day(scene.day - timedelta(1)) if _shift_of(scene) == -1 else None


def which_weekend(scene: Scene) -> Reading | None:
    """This, next and last weekend; "next" before a Saturday is this one or the one after."""
    shift, saturday = -1 if scene.has("past") else _shift_of(scene), scene.day.weekday() >= 5
    if scene.has("coming"):
        return Reading((weekend_of(scene.day, 1 if saturday else 0),), "day")
    if shift == 1 and not saturday:
        return Reading((weekend_of(scene.day), weekend_of(scene.day, 1)), "day")
    if shift == 0 and scene.tense == "past" and scene.day.weekday() < 2:
        shift = -1
    return Reading((weekend_of(scene.day, shift),), "day")


def weekend(scene: Scene) -> Reading | None:
    """At the weekend: the latest one in the past tense, else that of this week."""
    past = scene.tense == "past" and scene.day.weekday() < 5
    return Reading((weekend_of(scene.day, -1 if past else 0),), "day")


def weekday_of_week(scene: Scene) -> Reading | None:
    """Monday of last week, next week Thursday."""
    monday = week_of(scene.day, _shift_of(scene)).first
    return _day(monday + timedelta(scene.value("WEEKDAY")))


def weekdays_of_week(scene: Scene) -> Reading | None:
    """Thursday and Friday next week; Thursday or Friday has two readings."""
    monday = week_of(scene.day, _shift_of(scene)).first
    first, last = (monday + timedelta(word.value) for word in scene.all("WEEKDAY"))
    if scene.has("or"):
        return _days(first, last)
    return Reading((DateRange(first, last),), "day") if last == first + timedelta(1) else None


def which_weekday(scene: Scene) -> Reading | None:
    """Last, this, next and coming Friday; "next" before a Friday is this coming one or the one after."""
    weekday, today = scene.value("WEEKDAY"), scene.day.weekday()
    shift = -1 if scene.has("past") else 1 if scene.has("coming") else _shift_of(scene)
    if shift == -1:
        return _day(scene.last_weekday(weekday))
    if scene.has("coming"):
        return _day(scene.next_weekday(weekday))
    of_week = week_of(scene.day).first + timedelta(weekday)
    if shift == 1:
        coming = of_week + timedelta(7)
        return _days(coming) if today >= weekday else _days(of_week, coming)
    if weekday < today and scene.tense not in ("past", "unclear"):
        return _day(of_week + timedelta(7))
    return _day(of_week if weekday <= today or scene.tense != "past" else of_week - timedelta(7))


def weekday_gone(scene: Scene) -> Reading | None:
    """Monday last, Friday just gone."""
    return _day(scene.last_weekday(scene.value("WEEKDAY")))


def weekday_coming(scene: Scene) -> Reading | None:
    """Friday coming."""
    return _day(scene.next_weekday(scene.value("WEEKDAY")))


def weekday_beside(scene: Scene) -> Reading | None:
    """The Friday before last."""
    return _day(scene.last_weekday(scene.value("WEEKDAY")) - timedelta(7))


def weekday_after_next(scene: Scene) -> Reading | None:
    """The Saturday after next."""
    return _day(scene.next_weekday(scene.value("WEEKDAY")) + timedelta(7))


def weekday(scene: Scene) -> Reading | None:
    """Friday: the day just named if it is one, else the last one in the past tense, else the next one."""
    name = scene.value("WEEKDAY")
    if scene.before == "one" and (scene.start < 2 or scene.words[scene.start - 2].text not in ("next", "other", "new")):
        return None
    if _is_of_every_week(scene):
        return None
    last, coming = scene.last_weekday(name), scene.next_weekday(name)
    if (same := _named_just_now(scene, name)) is not None:
        return _day(same)
    tense = scene.tense
    if tense == "none":
        tense = "unclear" if _is_alone(scene) else _tense_before(scene)
    if tense == "past" and (scene.has("the") or (scene.verb[1] and scene.before != "about") or scene.role == "since"):
        return _day(last)
    if tense == "past":  # of another clause, or of what was told
        return _days(last, coming)
    if scene.has("the"):  # of some week that was spoken of
        return None
    if tense == "unclear":
        return _days(last, coming)
    if name == scene.day.weekday() and tense != "future":
        return _days(scene.day, coming)
    return _day(coming)


def _is_of_every_week(scene: Scene) -> bool:
    """Whether the weekday is one of every week: "no Monday slots", "my day off is Mondays, not Wednesday"."""
    after_habit = scene.start > 1 and scene.words[scene.start - 2].group == "WEEKDAYS"
    return scene.before == "no" or (scene.before == "not" and after_habit)


def _is_alone(scene: Scene) -> bool:
    """Whether the words are a sentence by themselves in the middle of a text: "Dropped it. Saturday. In the rain"."""
    after = scene.after
    return scene.before == "." and after is not None and after.kind == "."


def _tense_before(scene: Scene) -> Tense:
    """The tense of a sentence that has no verb, by the one before: after a past one it is unclear."""
    if scene.before in ("for", "by", "until", "till", "til"):
        thanked = scene.start > 1 and scene.words[scene.start - 2].text in ("thanks", "cheers", "you")
        return "past" if scene.before == "for" and thanked else "future"
    past = find_earlier_tense(scene.words, scene.start) == "past"
    return "none" if not past else "past" if scene.has("the") else "unclear"


def _named_just_now(scene: Scene, name: int) -> date | None:
    """The day of the last time named in the same text, where it has this weekday: "on the 6th, that's the Saturday"."""
    for span in scene.same_text[-1:]:
        (first, last), *others = span.readings
        if (scene.has("the") or scene.before == ",") and not others and first == last and first.weekday() == name:
            return first
    return None


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        ago, years_ago_month, back, hence, in_time, ago_on, weekday_ago, weekdays_ago, this_day_week, near_week,
        near_month, week_yesterday, weekday_week, week_on_weekday, week_last_weekday, lasting, unit_beside, which_unit,
        near, last_night, which_weekend, weekend, weekday_of_week, weekdays_of_week, which_weekday, weekday_gone,
        weekday_coming, weekday_beside, weekday_after_next, weekday,
    )
}  # fmt: skip
