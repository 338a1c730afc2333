"""Rules of English times that count from the day: ago, in three weeks, this month, next weekend, for six weeks."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from localmem.times.days import add_months, months_from, season_of, week_of, weekend_of, years_from
from localmem.times.english_scene import Reading, Rule, Scene, reading_of_day
from localmem.times.english_tense import verbs_of
from localmem.times.english_words import Word, words_beside
from localmem.types import DateRange, Precision


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
    elif scene.tense in ("present", "future") and _begins_now(texts) and not scene.has("last", "past"):
        first, last = scene.day, move_day(scene.day, unit, scene.count)
    else:
        return None
    return Reading((DateRange(first, last),), UNIT_PRECISIONS.get(unit, "day"), role="for")


_OTHER_TIMES = frozenset({"MONTH", "WEEKDAY", "WEEKDAYS", "NEAR", "SEASON", "HOLIDAY", "YEAR", "ORDINAL"})
UNIT_PRECISIONS: Mapping[str, Precision] = {
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
        if texts[index] == "been" and (not index or texts[index - 1] in verbs_of("joins")):  # "been off for a week"
            return True
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
    if scene.all("WEEKEND"):  # before a Saturday, "next" may be of this week
        both = (1, 2) if shift and scene.day.weekday() < 5 else (count,)
        return Reading(tuple(weekend_of(scene.day, weeks) for weeks in both), "day")
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
    if past and not scene.verb[1] and scene.has("before"):  # "I had one today and two more before the weekend"
        return Reading((weekend_of(scene.day, -1), weekend_of(scene.day)), "day")
    return Reading((weekend_of(scene.day, -1 if past else 0),), "day")


RULES: Mapping[str, Rule] = {
    rule.__name__: rule
    for rule in (
        ago, back, since_count, hence, in_time, after_time, before_now, lasting, unit_beside, which_unit, unit_gone,
        near, last_night, which_weekend, weekend_gone, weekend, week_this_time, end_of_week,
    )
}  # fmt: skip
