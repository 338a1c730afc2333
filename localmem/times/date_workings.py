"""Dates and what recurs: each from the days that units name, or nothing.

Knows nothing of how units were found.
"""

import re
from calendar import day_name
from datetime import date, timedelta

from localmem.times.annotate import language_of, write_dates
from localmem.times.cues import count_from, tells
from localmem.times.lines import line_of, sources_of, write_day
from localmem.times.parts import SURE, Parts
from localmem.times.questions import is_sure, stems
from localmem.times.resolver import find_times
from localmem.times.unit_parts import Event, days_of, length_before
from localmem.types import DateRange, Unit, Working

_WEEKS_AGO = re.compile(r"\bweeks? ago$")
_DAYS = dict(zip(("MO", "TU", "WE", "TH", "FR", "SA", "SU"), day_name, strict=True))
_ONE_WEEK = timedelta(7)
_FEW_DAYS = timedelta(days=5)  # of a shorter range both days are written in full


def date_of(parts: Parts) -> Working | None:
    """The day that is asked for: one that is counted, the end of something, or one that a unit names."""
    if parts.is_off:
        return None
    if count := count_from(parts.question):
        return _counted_date(parts, count)
    return _shifted_date(parts) or _chained_date(parts) or _end_date(parts) or _named_date(parts)


def _counted_date(parts: Parts, count: str) -> Working | None:
    """The day that the question counts from one that a unit names: "two weeks after Dad moved"."""
    event = parts.clearest(parts.expected_events(parts.days), days_of)
    if not event or not parts.is_tied(event) or not parts.is_about(event) or parts.may_have_moved(event):
        return None
    day = _count(count, event.days.first)
    return line_of(f"{count} {write_dates(event.days)} is {day:%A} {write_day(day)}", event) if day else None


def _count(count: str, day: date) -> date | None:
    """The day that lies so far from a day: "two weeks after"."""
    spans = find_times(f"{count} today", day, language="en")
    sure = len(spans) == 1 and len(spans[0].readings) == 1 and spans[0].readings[0].first != day
    return spans[0].readings[0].first if sure else None


def _end_date(parts: Parts) -> Working | None:
    """The end of what lasts so long from a day that is named: "in plaster for four weeks from last Tuesday"."""
    if not tells("asks for an end", parts.question):
        return None
    lasting = [event for event in parts.days if length_before(event)]
    if not parts.is_chosen:
        lasting = [event for event in lasting if parts.words & event.sentences]
    event = parts.clearest(lasting, days_of)
    length = length_before(event) if event else ""
    end = _count(f"{length} from", event.days.first) if event else None
    if event is None or end is None or parts.may_have_moved(event):
        return None
    return line_of(f"{length} from {write_dates(event.days)} is {end:%A} {write_day(end)}", event)


def _named_date(parts: Parts) -> Working | None:
    """The day that a unit names, or a longer time where no unit names a day."""
    events = parts.expected_events(parts.days or parts.events)
    event = parts.clearest(events, days_of)
    if (
        not event
        or not parts.is_tied(event)
        or not parts.is_about(event)
        or parts.may_have_moved(event)
        or parts.may_be_elsewhere(event)
    ):
        return None
    rivals = [other for other in parts.days if other.unit.id == event.unit.id and other.days != event.days]
    if rivals and parts.is_chosen and not parts.words & event.sentences:
        return None
    is_sole = parts.is_alone and len(parts.events) == 1 and event.days.last - event.days.first < _ONE_WEEK
    if not parts.days and not is_sole and not parts.words & event.sentences:
        return None
    if (
        parts.is_back
        and event.is_ahead
        and any(other.unit.id == event.unit.id and not other.is_ahead for other in events)
    ):
        return None
    return line_of(_tell_day(event), event)


def _tell_day(event: Event) -> str:
    """An event's words, when they were said, and what they mean, in the language that they were said in as well."""
    (first, last), said, language = event.days, event.unit.time.date(), language_of(event.unit.text)
    is_long = last - first > _FEW_DAYS
    days = write_dates(event.days) if is_long else " to ".join(map(write_day, dict.fromkeys(event.days)))
    day = f"{first:%A} " if first == last else ""
    weeks = round((said - first).days / 7) if _WEEKS_AGO.search(event.words) else 0
    exact = f"about {write_day(said - timedelta(7 * weeks))}, " if weeks else ""
    own = f" ({write_dates(event.days, language)})" if language != "en" else ""
    return f'"{event.words}", said on {write_day(said)}, is {exact}{day}{days}{own}'


def _chained_date(parts: Parts) -> Working | None:
    """The day that is counted from another that a unit names: "two weeks before the congress"."""
    if not (place := parts.only_place("counts from a day")):
        return None
    unit, sentence, match = place
    count = f"{match['count']} {match['side']}"
    elsewhere = [event for event in parts.days if event.sentence.strip() != sentence]
    is_only = parts.is_chosen and not any(parts.words & event.clause for event in parts.expected_events(elsewhere))
    if not is_only and not parts.words & stems(sentence.replace(match["anchor"], "")):
        return None
    words = stems(match["anchor"])
    beside = [event for event in parts.days if event.sentence == sentence and event.words in match["anchor"]]
    spans = [] if beside else find_times(match["anchor"], unit.time.date(), language="en")
    if spans:  # "ten days from the day before yesterday"
        return _counted_on(spans[0].readings[0], match, count, unit) if is_sure(spans[0]) else None
    others = [event for event in elsewhere if words & stems(event.sentence)]
    of_unit = [event for event in elsewhere if is_only or (event.unit.id == unit.id and not words)]
    anchor = parts.clearest(beside or others or of_unit, days_of, words)
    if not anchor or parts.may_have_moved(anchor):
        return None
    return _counted_on(anchor.days, match, count, unit, anchor.unit)


def _counted_on(days: DateRange, match: re.Match[str], count: str, *units: Unit) -> Working | None:
    """The day that the words of the first unit count from days that the last one names."""
    if not (day := _count(count, days.first)):
        return None
    counted = f'"{match[0].strip()}", said on {write_day(units[0].time.date())}'
    return Working(f"{counted}, is {day:%A} {write_day(day)}, counted from {write_dates(days)}", sources_of(units))


def _shifted_date(parts: Parts) -> Working | None:
    """The day that a later unit moves by a length of time: "a week later than planned"."""
    if not (place := parts.only_place("moves a day")):
        return None
    unit, sentence, match = place
    planned = [event for event in parts.days if event.is_ahead and event.unit.time < unit.time]
    if not parts.is_chosen:
        planned = [
            event for event in planned if stems(sentence) & event.clause & parts.words and parts.score(event) >= SURE
        ]
    anchor, side = parts.clearest(planned, days_of), "before" if match["early"] else "after"
    return _counted_on(anchor.days, match, f"{match['count']} {side}", unit, anchor.unit) if anchor else None


def frequency_of(parts: Parts) -> Working | None:
    """How often something is said to recur."""
    habit = parts.clearest(parts.habits, lambda event: event.repeats)
    if not habit or not parts.is_about(habit) or not (rule := _write_rule(habit.repeats)):
        return None
    return line_of(f'"{habit.words}", said on {write_day(habit.unit.time.date())}, is {rule}', habit)


def _write_rule(rule: str) -> str:
    """An RRULE of days or weeks in words, "" for another."""
    parts = dict(part.split("=") for part in rule.removeprefix("RRULE:").split(";"))
    step = int(parts.get("INTERVAL", 1))
    if parts.get("FREQ") == "DAILY" and step == 1:
        return "every day"
    days = [_DAYS.get(day, "") for day in parts.get("BYDAY", "").split(",")]
    if parts.get("FREQ") != "WEEKLY" or not all(days):
        return ""
    every = "every week" if step == 1 else f"every {step} weeks"
    return f"{every} on {' and '.join(days)}"
