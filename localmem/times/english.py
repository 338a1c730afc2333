"""The times that English texts name: one scan by the grammar in english.yaml, resolved by the rules it names.

A text is read as words of a small lexicon (english_words), those that only look like times are dropped
(english_names), and rules resolve what remains by the day, the tense and the times named before.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import NamedTuple

from localmem.times import (
    english_calendar,
    english_dates,
    english_days,
    english_parts,
    english_recurring,
    english_relative,
    english_weekdays,
    english_weeks,
)
from localmem.times.days import one_day, week_of, weekend_of
from localmem.times.english_grammar import load_rules
from localmem.times.english_names import settle_names
from localmem.times.english_relative import move_day
from localmem.times.english_scene import Reading, Rule, Scene
from localmem.times.english_tense import is_moved, verbs_of
from localmem.times.english_words import Word, read_words, words_beside
from localmem.types import DateRange, TimeRole, TimeSpan

_ROLES: Mapping[str, TimeRole] = {
    "since": "since", "until": "until", "till": "until", "til": "until", "untill": "until", "by": "until",
}  # fmt: skip
_YEARS = range(1000, 9000)  # of days by which times are resolved; a log of others has a broken clock
_JOINS = frozenset({"to", "-", "until", "till", "til", "through"})


class Finding(NamedTuple):
    """A time between two words of a text."""

    start: int
    end: int
    span: TimeSpan


def find_times(
    text: str, day: date, context: Sequence[TimeSpan] = (), *, day_first: bool | None = None
) -> list[TimeSpan]:
    """The times that an English text names; see `localmem.times.resolver`."""
    grammar = load_rules()
    all_words = read_words(text)
    if day.year not in _YEARS or not any(word.group for word in all_words):
        return []
    words = settle_names(all_words, text)
    kinds = "".join(word.kind for word in words)
    findings: list[Finding] = []
    relation: tuple[str, Scene] | None = None
    position = 0
    while match := grammar.search(kinds, position):
        start, position, name = match
        if name == "rate" and _is_age(words, start):
            position = start + 1
            continue
        begins = relation[1].start if relation and relation[1].end == start else start
        same_text = [finding.span for finding in findings]
        role, lead = _role_of(words, begins)
        scene = Scene(words, start, position, day, role, context, same_text, day_first)
        if name in _RELATIONS:
            relation = (name, scene)
            reading = _relate_to_last(name, scene)
            if _is_weekday_alone(name, scene) and not reading and not grammar.match(kinds, position):
                relation, position = None, position - 1
                scene = replace(scene, end=position)
                reading = _RULES["which_weekday" if scene.all("LAST") else "weekday"](scene)
        else:
            reading = _RULES[name](scene)
            if reading is None and name in _PAIRS and (split := _first_of_pair(scene)):
                reading, position = _RULES[_PAIRS[name]](scene if name == "weekdays_of_week" else split), split.end
                scene, begins = split, max(begins, split.start)
            if reading and relation and begins < start:
                if relation[1].has("from") and not _is_one_day(reading):  # "25 hours a week from September"
                    begins, (_, lead) = start, _role_of(words, start)
                else:
                    reading = _relate(*relation, reading)
            relation = None
        if reading and reading.ranges:
            lead = lead if name in _WITH_LEAD else _skip_lead(words, lead, position)
            findings.append(Finding(begins, position, _span_of(text, scene, lead, reading)))
    return [finding.span for finding in _join_ranges(findings, words, text)]


def _is_age(words: Sequence[Word], start: int) -> bool:
    """Whether words[start] is an age rather than a rate: "Dad's eighty a week on Friday"."""
    before = words[start - 1].text.strip() if start else ""
    if words[start + 1].group != "ARTICLE":
        return False
    return before in verbs_of("ages") or before.endswith("'s")


def _is_weekday_alone(name: str, scene: Scene) -> bool:
    """Whether no time need follow: "Friday after work", not "the Friday after"."""
    return name == "beside_weekday" and not scene.has("the", "that")


def _first_of_pair(scene: Scene) -> Scene | None:
    """The first of two times that are no range: "the 3rd and the 10th of June", "from Tuesday to Friday this week"."""
    ends = (index for index in range(scene.start, scene.end) if scene.words[index].text.strip() in _CONNECTIONS)
    end = next(ends, None)
    start = scene.start + (scene.words[scene.start].text in ("from", "between"))
    return replace(scene, start=start, end=end) if end else None


def _role_of(words: Sequence[Word], start: int) -> tuple[TimeRole, int]:
    """What the word before a time, or its first word, makes of it, and where the time's words begin by that."""
    for index in range(start, max(-1, start - 6), -1):
        if role := _ROLES.get(words[index].text):
            return role, index
        if index < start and words[index].text not in words_beside("role_gaps"):
            break
    return "at", start


def _skip_lead(words: Sequence[Word], start: int, end: int) -> int:
    """Where the words of a time begin without its prepositions."""
    while start < end - 1 and words[start].text in words_beside("prepositions"):
        start += 1
    return start


def _span_of(text: str, scene: Scene, start: int, reading: Reading) -> TimeSpan:
    at, end = scene.words[start].start, scene.words[scene.end - 1].end
    role = reading.role or scene.role
    return TimeSpan(text[at:end], at, reading.ranges, reading.precision, role, reading.repeats)


def _join_ranges(findings: Sequence[Finding], words: Sequence[Word], text: str) -> list[Finding]:
    """The findings, where "10 March to 6 June" is one; Monday to Friday is none, as it may be of every week."""
    joined: list[Finding] = []
    for finding in findings:
        if not joined or not _is_range(joined[-1], finding, words) or is_moved(words, joined[-1].start):
            joined.append(finding)
            continue
        first = joined.pop()
        start, end = first.span.readings[0].first, finding.span.readings[0].last
        if _are_weekdays(first, finding, words):
            habit = any(word.text in verbs_of("habits") for word in words[max(0, first.start - 4) : first.start])
            if habit or (start.weekday(), end.weekday()) == (0, 4):
                continue
            end = start + timedelta((end.weekday() - start.weekday()) % 7)
        if start > end and finding.span.precision == "month" and words[first.start - 1].text == "from":
            start = start.replace(year=start.year - 1)  # "I worked from April to June"
        if start > end:  # "moved from 13 June to 6 June"
            joined += [first, finding]
            continue
        days = DateRange(start, end)
        at = first.span.at
        named = text[at : words[finding.end - 1].end]
        joined.append(Finding(first.start, finding.end, TimeSpan(named, at, (days,), first.span.precision)))
    return joined


def _is_range(first: Finding, second: Finding, words: Sequence[Word]) -> bool:
    between = words[first.end : second.start] or words[second.start : second.start + 1]
    open_end = second.span.readings[1:] and not _are_weekdays(first, second, words)  # whose end follows from its start
    single = not (first.span.readings[1:] or open_end or first.span.repeats or second.span.repeats)
    both = first.start > 0 and "between" in (words[first.start - 1].text, words[first.start].text)
    text = between[0].text if between else ""
    joins = len(between) == 1 and (text in _JOINS or between[0].kind == "-" or (both and text == "and"))
    return joins and single and second.start - first.end <= 1 and first.span.precision == second.span.precision


def _are_weekdays(first: Finding, second: Finding, words: Sequence[Word]) -> bool:
    return all(words[part.start].group == words[part.end - 1].group == "WEEKDAY" for part in (first, second))


def _step(scene: Scene) -> int:
    return -1 if scene.has("before") else 1


def _in_week(scene: Scene, day: date) -> DateRange:
    return weekend_of(day) if scene.all("WEEKEND") else week_of(day)


def _beside_day(scene: Scene, day: date) -> DateRange:
    return one_day(day, _step(scene))


def _beside_weekday(scene: Scene, day: date) -> DateRange:
    step, weekday = _step(scene), scene.value("WEEKDAY")
    return one_day(day, step * ((step * (weekday - day.weekday()) - 1) % 7 + 1))


def _beside_weekend(scene: Scene, day: date) -> DateRange | None:
    """The weekend before or after; None where it adjoins the day, as that of Labor Day does."""
    step = _step(scene)
    if day.weekday() == (0 if step < 0 else 4):
        return None
    return weekend_of(day, -1 if step < 0 else day.weekday() >= 5)


def _week_after(_: Scene, day: date) -> DateRange | None:
    """The week after Easter; None for a day in the middle of a week."""
    return week_of(day, 1) if day.weekday() > 3 else None


def _beside_count(scene: Scene, day: date) -> DateRange:
    return one_day(move_day(day, scene.unit, _step(scene) * scene.count))


_RELATIONS: Mapping[str, Callable[[Scene, date], DateRange | None] | None] = {
    "beside_day": _beside_day,
    "beside_weekday": _beside_weekday,
    "beside_count": _beside_count,
    "beside_weekend": _beside_weekend,
    "week_after": _week_after,
    "in_week": _in_week,
    "nothing": None,
}
_RULES: Mapping[str, Rule] = {
    **english_calendar.RULES,
    **english_dates.RULES,
    **english_days.RULES,
    **english_parts.RULES,
    **english_recurring.RULES,
    **english_relative.RULES,
    **english_weekdays.RULES,
    **english_weeks.RULES,
    "skip": lambda _: None,
    "rate": lambda _: None,
}
_CONNECTIONS = frozenset({"and", "to", "-", "until", "till", "through"})
_PAIRS = {"day_range": "bare_day", "bare_range": "bare_day", "weekdays_of_week": "weekday_of_week"}
_WITH_LEAD = frozenset({"in_time", "lasting"})


def _is_one_day(reading: Reading) -> bool:
    return all(days.first == days.last for days in reading.ranges)


def _relate(name: str, scene: Scene, reading: Reading) -> Reading | None:
    """What "the day after" or "the week of" makes of the day that follows."""
    relation = _RELATIONS[name]
    if relation is None or not _is_one_day(reading):
        return None
    related = [relation(scene, days.first) for days in reading.ranges]
    ranges = tuple(days for days in related if days)
    if len(ranges) < len(related):
        return None
    return Reading(ranges, "week" if name in ("in_week", "week_after") and not scene.all("WEEKEND") else "day")


def _relate_to_last(name: str, scene: Scene) -> Reading | None:
    """What "the Saturday after" says at the end of a clause, where the text named one day before it."""
    ends = scene.after is None or scene.after.kind in ".,"
    ends = ends or (scene.before == "and" and scene.after is not None and scene.after.text in verbs_of("joins"))
    if not ends or not scene.same_text or name not in ("beside_day", "beside_weekday"):
        return None
    span = scene.same_text[-1]
    single = len(span.readings) == 1 and not span.repeats and span.precision == "day"
    return _relate(name, scene, Reading(span.readings, "day")) if single else None
