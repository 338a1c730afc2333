"""Rules of English times that count from the day: ago, in three weeks, last Friday, this month, for six weeks."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from localmem.times.days import add_months, months_from, one_day, season_of, week_of, weekend_of, years_from
from localmem.times.english_scene import Reading, Rule, Scene, reading_of_day
from localmem.times.english_tense import Tense, find_earlier_tense, verbs_of
from localmem.times.english_words import Word, words_beside
from localmem.types import DateRange, Precision


def _days(*days: date) -> Reading:
    return Reading(tuple(one_day(day) for day in sorted(set(days))), "day")


def shift_by(day: date, unit: str, count: int) -> Reading | None:
    """The unit of the calendar `count` units from a day: "three weeks ago" is a week, "ten days ago" a day."""
    if unit == "week":
        return Reading((week_of(day, count),), "week")
    if unit == "month":
        return Reading((months_from(day.year, day.month + count),), "month")
    if unit == "year":
        return Reading((years_from(day.year + count),), "year")
    if unit == "decade":
        return None
    return reading_of_day(day + timedelta(count * (14 if unit == "fortnight" else 1)))


def move_day(day: date, unit: str, count: int) -> date:
    """The day that lies `count` units from a day."""
    if unit in ("month", "year", "decade"):
        return add_months(day, count * {"month": 1, "year": 12, "decade": 120}[unit])
    return day + timedelta(count * {"week": 7, "fortnight": 14}.get(unit, 1))


def ago(scene: Scene) -> Reading | None:
    """Three weeks ago."""
    return shift_by(scene.day, scene.unit, -scene.count)


def back(scene: Scene) -> Reading | None:
    """Three weeks back, three weeks since; not "two days back at work", nor "it's three weeks since"."""
    follower = scene.after.text if scene.after is not None else ""
    counts = scene.before in ("been", "is", "it's", "was", "be", "being") or follower in words_beside("back_to")
    if scene.has("since"):
        ends = scene.after is None or scene.after.kind in ".," or follower in verbs_of("joins")
        return ago(scene) if ends and not counts and scene.tense == "past" else None
    return ago(scene) if not counts and scene.tense in ("past", "unclear", "none") else None


def since_count(scene: Scene) -> Reading | None:
    """Since three weeks, from last two years: what has lasted so long, as learners say it."""
    follower = scene.after
    counted_on = follower is not None and (
        follower.text in words_beside("counted_on") or follower.kind in "-/" or follower.group
    )
    if counted_on or (scene.has("from") and scene.tense == "future"):
        return None
    if (reading := ago(scene)) is None:
        return None
    return reading._replace(role="since")


def after_time(scene: Scene) -> Reading | None:
    """After two days, of what will be: learners count so from the day."""
    follower = scene.after
    ends = (
        follower is None or follower.kind in ".," or follower.text in (*verbs_of("joins"), "i", "my", "we", "he", "she")
    )
    return hence(scene) if ends and scene.verb == ("future", True) else None


def before_now(scene: Scene) -> Reading | None:
    """Before two years, of what was: learners mean ago."""
    follower = scene.after
    ends = follower is None or follower.kind in ".," or follower.text in ("i", "we", "my", "he", "she")
    return ago(scene) if ends and scene.verb == ("past", True) else None


def hence(scene: Scene) -> Reading | None:
    """Three weeks from now."""
    return shift_by(scene.day, scene.unit, scene.count)


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


def lasting(scene: Scene) -> Reading | None:
    """For six weeks, where the verb says whether they are past or begin now, and no other time is near."""
    before, after = _clause(scene)
    if any(word.group in _OTHER_TIMES for word in (*before, *_up_to_join(after))):
        return None
    texts = [word.text for word in before]
    unit, follower = scene.unit, scene.after
    so_far = scene.has("now", "already") or (follower is not None and follower.text in ("already", "na", "running"))
    if _is_perfect(texts) or (so_far and scene.tense == "present" and not set(texts) & {"will", "going"}):
        first, last = move_day(scene.day, unit, -scene.count), scene.day
    elif scene.tense in ("present", "future") and _begins_now(texts):
        first, last = scene.day, move_day(scene.day, unit, scene.count)
    else:
        return None
    return Reading((DateRange(first, last),), _PRECISIONS.get(unit, "day"), role="for")


_OTHER_TIMES = frozenset({"MONTH", "WEEKDAY", "WEEKDAYS", "NEAR", "SEASON", "HOLIDAY", "YEAR", "ORDINAL"})
_PRECISIONS: Mapping[str, Precision] = {
    "week": "week", "fortnight": "week", "month": "month", "year": "year", "decade": "year",
}  # fmt: skip


def _clause(scene: Scene) -> tuple[Sequence[Word], Sequence[Word]]:
    """The words of the sentence before and after the match."""
    start, end = scene.start, scene.end
    while start and scene.words[start - 1].kind != ".":
        start -= 1
    while end < len(scene.words) and scene.words[end].kind != ".":
        end += 1
    return scene.words[start : scene.start], scene.words[scene.end : end]


def _up_to_join(words: Sequence[Word]) -> Sequence[Word]:
    """The words up to the next clause."""
    ends = (index for index, word in enumerate(words) if word.kind == "," or word.text in verbs_of("joins"))
    return words[: next(ends, len(words))]


def _is_perfect(texts: Sequence[str]) -> bool:
    """Whether the last verb is "has been", "I've worked"."""
    have, participles = verbs_of("have"), verbs_of("past")
    for index in range(len(texts) - 1, -1, -1):
        follows = texts[max(0, index - 1) : index]
        has = texts[index] in have or texts[index].endswith("'ve")
        has = has or (texts[index + 1 : index + 2] == ["been"] and texts[index] in ("it's", "its", "that's", "i"))
        if texts[index] == "had" and follows and (follows[0] in have or follows[0].endswith("'ve")):
            return True
        if texts[index] in ("was", "were", "did", "had", "will") or texts[index].endswith("'ll"):
            return False
        if has:
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
    return shift_by(scene.day, scene.unit, count)


def which_unit(scene: Scene) -> Reading | None:
    """This week, next month, last year."""
    return shift_by(scene.day, scene.unit, scene.shift)


def unit_gone(scene: Scene) -> Reading | None:
    """The week just gone, the month past; of a week that ends only the last one."""
    if scene.unit == "week" and scene.day.weekday() >= 5:
        return None
    return shift_by(scene.day, scene.unit, -1) if scene.unit in ("week", "month", "year") else None


def end_of_week(scene: Scene) -> Reading | None:
    """By the end of next week, by end of this week: until that week is over."""
    if scene.role != "until" and scene.before != "before":
        return None
    shifts = scene.all("LAST", "THIS", "NEXT")
    return Reading((week_of(scene.day, shifts[0].value if shifts else 0),), "week")


def week_this_time(scene: Scene) -> Reading | None:
    """This time next week, this time tomorrow: the day itself."""
    if near_days := scene.all("NEAR"):
        return reading_of_day(scene.day + timedelta(near_days[0].value))
    shift = scene.all("LAST", "THIS", "NEXT")[-1].value
    return reading_of_day(scene.day + timedelta(7 * shift)) if shift else None


def near(scene: Scene) -> Reading | None:
    """Today, tomorrow, yesterday morning, this afternoon; not "in the morn"."""
    if scene.before == "in" and scene.phrase[0].text == "the morn":
        return None
    if scene.before == "on" and scene.phrase[0].text == "the morrow":
        return None
    return reading_of_day(scene.day + timedelta(scene.value_or_none("NEAR") or 0))


def last_night(scene: Scene) -> Reading | None:
    """Last night; "next night" and "this night" say nothing sure."""
    return reading_of_day(scene.day - timedelta(1)) if scene.shift == -1 else None


def which_weekend(scene: Scene) -> Reading | None:
    """This, next and last weekend; "next" before a Saturday is this one or the one after."""
    shift, saturday = -1 if scene.has("past") else scene.shift, scene.day.weekday() >= 5
    if scene.has("coming"):
        return Reading((weekend_of(scene.day, 1 if saturday else 0),), "day")
    if shift == 1 and not saturday:
        return Reading((weekend_of(scene.day), weekend_of(scene.day, 1)), "day")
    if shift == 0 and scene.tense == "past" and scene.day.weekday() < 2:
        shift = -1
    return Reading((weekend_of(scene.day, shift),), "day")


def weekend_gone(scene: Scene) -> Reading | None:
    """The weekend just gone, the weekend past; the weekend coming."""
    saturday = scene.day.weekday() >= 5
    if scene.has("coming"):
        return Reading((weekend_of(scene.day, 1 if saturday else 0),), "day")
    return Reading((weekend_of(scene.day, -1),), "day")


def weekend(scene: Scene) -> Reading | None:
    """At the weekend: the latest one in the past tense, else that of this week."""
    past = scene.tense == "past" and scene.day.weekday() < 5
    return Reading((weekend_of(scene.day, -1 if past else 0),), "day")


def weekday_of_week(scene: Scene) -> Reading | None:
    """Monday of last week, next week Thursday."""
    monday = week_of(scene.day, scene.shift).first
    return reading_of_day(monday + timedelta(scene.value("WEEKDAY")))


def weekdays_of_week(scene: Scene) -> Reading | None:
    """Thursday and Friday next week, Monday to Thursday next week; Thursday or Friday has two readings."""
    monday = week_of(scene.day, scene.shift).first
    first, last = (monday + timedelta(word.value) for word in scene.all("WEEKDAY"))
    if scene.has("or"):
        return _days(first, last)
    together = last == first + timedelta(1) if scene.has("and") else last > first
    return Reading((DateRange(first, last),), "day") if together else None


def which_weekday(scene: Scene) -> Reading | None:
    """Last, this, next and coming Friday; "next" before a Friday is this coming one or the one after."""
    weekday, today = scene.value("WEEKDAY"), scene.day.weekday()
    shift = -1 if scene.has("past") else 1 if scene.has("coming") else scene.shift
    if shift == -1 or scene.has("gone", "passed"):
        return reading_of_day(scene.last_weekday(weekday))
    if scene.has("coming"):
        return reading_of_day(scene.next_weekday(weekday))
    of_week = week_of(scene.day).first + timedelta(weekday)
    if shift == 1:
        coming = of_week + timedelta(7)
        return _days(coming) if today >= weekday else _days(of_week, coming)
    if weekday < today and scene.tense not in ("past", "unclear"):
        return reading_of_day(of_week + timedelta(7))
    return reading_of_day(of_week if weekday <= today or scene.tense != "past" else of_week - timedelta(7))


def weekday_gone(scene: Scene) -> Reading | None:
    """Monday last, Friday just gone."""
    return reading_of_day(scene.last_weekday(scene.value("WEEKDAY")))


def weekday_there(scene: Scene) -> Reading | None:
    """Monday there, of what was, as Scots say; not "on Monday there was"."""
    if scene.after is not None and scene.after.text in verbs_of("exists"):
        return weekday(scene)
    ends = scene.after is None or scene.after.kind in ".," or scene.after.text in verbs_of("joins")
    return weekday_gone(scene) if ends and scene.tense == "past" else weekday(scene)


def weekday_first(scene: Scene) -> Reading | None:
    """From Saturday first, as Scots say; not "Saturday first thing"."""
    ends = scene.after is None or scene.after.text not in ("thing", "up", "half", "and", "then")
    leads = scene.before in ("on", "from", "by", "till", "til", "until", "this", "of")
    return weekday_coming(scene) if ends and leads else weekday(scene)


def weekday_coming(scene: Scene) -> Reading | None:
    """Friday coming, Friday next."""
    if scene.all("NEXT") and scene.after is not None and (scene.after.group == "UNIT" or scene.after.text == "to"):
        return weekday(scene)
    return reading_of_day(scene.next_weekday(scene.value("WEEKDAY")))


def weekday(scene: Scene) -> Reading | None:
    """Friday: the day just named if it is one, else the last one in the past tense, else the next one."""
    name = scene.value("WEEKDAY")
    if scene.before == "one" and (scene.start < 2 or scene.words[scene.start - 2].text not in ("next", "other", "new")):
        return None
    if _is_of_every_week(scene):
        return None
    last, coming = scene.last_weekday(name), scene.next_weekday(name)
    if (same := _named_just_now(scene, name) or _end_of_range(scene, name)) is not None:
        return reading_of_day(same)
    tense = scene.tense
    if tense == "none":
        tense = "unclear" if _is_alone(scene) else _tense_before(scene)
    if tense == "past" and (scene.has("the") or (scene.verb[1] and scene.before != "about") or scene.role == "since"):
        return reading_of_day(last)
    if tense == "past":  # of another clause, or of what was told
        return _days(last, coming)
    if scene.has("the"):  # of some week that was spoken of
        return None
    if tense == "unclear":
        return _days(last, coming)
    if name == scene.day.weekday() and tense != "future":
        return _days(scene.day, coming)
    return reading_of_day(coming)


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


def _end_of_range(scene: Scene, name: int) -> date | None:
    """The day to which a range reaches: "Good Friday to the Tuesday"."""
    leads = scene.has("the") and scene.before in ("to", "till", "until", "through")
    if not leads or scene.start < 2 or not scene.same_text:
        return None
    span = scene.same_text[-1]
    adjoins = span.at + len(span.words) == scene.words[scene.start - 2].end
    if not adjoins or len(span.readings) != 1 or span.precision != "day":
        return None
    start = span.readings[0].first
    return start + timedelta((name - start.weekday() - 1) % 7 + 1)


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        ago, back, since_count, hence, in_time, after_time, before_now, lasting, unit_beside, which_unit, unit_gone,
        near, last_night, which_weekend, weekend_gone, weekend, weekday_of_week, weekdays_of_week, week_this_time,
        which_weekday, weekday_gone, weekday_coming, weekday_there, weekday_first, end_of_week, weekday,
    )
}  # fmt: skip
