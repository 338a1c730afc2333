"""Rules of English times that name a weekday: Friday, last Friday, Friday there, Thursday and Friday next week."""

import re
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from itertools import pairwise, takewhile

from localmem.times.days import one_day, week_of
from localmem.times.english_scene import Reading, Rule, Scene, reading_of_day
from localmem.times.english_tense import Tense, find_earlier_tense, is_moved, verbs_of
from localmem.times.english_words import Word, words_beside
from localmem.types import DateRange

_CLOCK = frozenset({"COUNT", "SMALL", "PART"})
_LIST, _SENTENCE = 20, 30  # words of a list of weekdays, and of a sentence about it, that are looked at
_STORY = timedelta(days=31)  # a named day that lies further back is hardly where a weekday is counted from


def _days(*days: date) -> Reading:
    return Reading(tuple(one_day(day) for day in sorted(set(days))), "day")


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
    adjoin = last == first + timedelta(1)
    together = adjoin if scene.has("and") else last > first and not is_moved(scene.words, scene.start)
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
    """Monday last, Friday just gone; not "Friday last thing", nor "Friday past nine"."""
    follower = scene.after
    if follower is not None and (follower.group in _CLOCK or follower.text in words_beside("clock_after")):
        return weekday(scene)
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
    reading = _weekday_by_tense(scene)
    if reading and _is_listed_habit(scene):
        return None
    if reading and len(reading.ranges) > 1:
        return _next_of_list(scene, reading)
    return _behind_start(scene, reading) if reading and scene.before == "through" else reading


def _behind_start(scene: Scene, reading: Reading) -> Reading:
    """The weekday behind a coming day that the sentence began with: "starts Sunday and runs through Wednesday"."""
    spans = [span for span in scene.same_text if len(span.readings) == 1 and not span.repeats]
    if not spans or any(word.kind == "." and spans[-1].at < word.start for word in scene.words[: scene.start]):
        return reading
    start, end = spans[-1].readings[0].last, reading.ranges[0].first
    if not scene.day <= end < start or is_moved(scene.words, scene.start):
        return reading
    return reading_of_day(start + timedelta((end - start).days % 7))


def _weekday_by_tense(scene: Scene) -> Reading | None:
    name = scene.value("WEEKDAY")
    if scene.before == "one" and (scene.start < 2 or scene.words[scene.start - 2].text not in ("next", "other", "new")):
        return None
    if _is_of_every_week(scene):
        return None
    last, coming = _following_day(scene, name) or scene.last_weekday(name), scene.next_weekday(name)
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


def _next_of_list(scene: Scene, options: Reading) -> Reading:
    """Of two weekdays, the one that follows the day named just before: "Monday the 23rd and Tuesday"."""
    span = scene.same_text[-1] if scene.same_text and scene.before in ("and", ",", "or", "/") else None
    if span is None or span.at + len(span.words) != scene.words[scene.start - 2].end or len(span.readings) > 1:
        return options
    first, last = span.readings[0]
    nearest = [days for days in options.ranges if first == last and 0 < (days.first - last).days < 7]
    return Reading((nearest[0],), "day") if len(nearest) == 1 and not span.repeats else options


def _is_of_every_week(scene: Scene) -> bool:
    """Whether the weekday is one of every week: "no Monday slots", "my day off is Mondays, not Wednesday"."""
    after_habit = scene.start > 1 and scene.words[scene.start - 2].group == "WEEKDAYS"
    return scene.before == "no" or (scene.before == "not" and after_habit)


def _is_listed_habit(scene: Scene) -> bool:
    """Whether it is, in the present, one of several weekdays of a habit: "my gym is Monday, Wednesday and Friday".

    Days in a row ("the vote is Thursday and Friday") and those of where the speaker is ("I'm in on Tuesday and Friday")
    are of one week, unless the verb is of what people do each week; so are those of exams and flights.
    """
    words = scene.words
    first, last = _end_of_list(words, scene.start, -1), _end_of_list(words, scene.end - 1, 1)
    days = {word.value for word in words[first : last + 1] if word.group in ("WEEKDAY", "WEEKDAYS")}
    if len(days) < 2 or scene.tense != "present":
        return False
    before = list(takewhile(lambda word: word.kind != ".", reversed(words[max(0, first - _SENTENCE) : first])))
    after = list(takewhile(lambda word: word.kind != ".", words[last + 1 : last + 1 + _SENTENCE]))
    if any(word.group in ("LAST", "THIS", "NEXT") for word in (*before, *after)):
        return False
    if any(verb.text.endswith("ing") and be.text in verbs_of("be") for verb, be in pairwise(before)):
        return False  # "I'm working Monday and Friday"
    if after and after[0].text in verbs_of("subjects") | verbs_of("be"):  # of another clause
        return False
    if any(word.text in verbs_of("weekly") for word in before):
        return True
    if _events().search(" ".join(word.text for word in reversed(before))):
        return False
    is_apart = sum((day + 1) % 7 not in days for day in days) > 1
    return is_apart and not any(word.text in ("i'm", "im", "am", "we're") for word in before)


@cache
def _events() -> re.Pattern[str]:
    """Words before a list of weekdays that say what happens once on them: "flights to Rome are on"."""
    events, be = ("|".join(map(re.escape, verbs_of(name))) for name in ("events", "be"))
    return re.compile(
        rf"\b(?:{events})(?: (?:for|with|at|to|in|of)(?: [\w'’-]+){{1,4}}?)?(?: (?:{be}))?(?: both)?(?: on)?(?: the)?$"
    )


def _end_of_list(words: Sequence[Word], index: int, step: int) -> int:
    """The place of the last weekday of a list that holds words[index], in the direction of a step of 1 or -1."""
    for place in range(index + step, max(-1, min(len(words), index + step * _LIST)), step):
        word = words[place]
        if word.group in ("WEEKDAY", "WEEKDAYS"):
            index = place
        elif word.kind != "," and word.text not in ("and", "&", "on", "the"):
            break
    return index


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


def _following_day(scene: Scene, name: int) -> date | None:
    """The weekday after a past day of a story: "I slipped on the 8th of January, and was home on the Tuesday"."""
    if not scene.has("the") or scene.role != "at" or not scene.same_text:
        return None
    span = scene.same_text[-1]
    (first, last), *others = span.readings
    if others or first != last or span.repeats or not timedelta(0) < scene.day - first <= _STORY:
        return None
    following = first + timedelta((name - first.weekday() - 1) % 7 + 1)
    return following if following <= scene.day else None


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
        weekday_of_week, weekdays_of_week, which_weekday, weekday_gone, weekday_coming, weekday_there, weekday_first,
        weekday,
    )
}  # fmt: skip
