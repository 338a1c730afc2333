"""Lengths of time, ages, how many times and in what order: each from the days that units name, or nothing.

Knows no amounts but years, and nothing of how units were found.
"""

import re
from collections.abc import Sequence
from datetime import date, timedelta
from fractions import Fraction

from localmem.times.amounts import write_amount
from localmem.times.annotate import write_dates
from localmem.times.cues import alternatives, moment_of_age, tells
from localmem.times.lines import line_of, write_day
from localmem.times.parts import Parts
from localmem.times.questions import stems
from localmem.times.unit_parts import Event, days_of
from localmem.types import DateRange, Working

_WEEK = 7
_MONTH = 365.2425 / 12
_CLOCK = re.compile(r"\b(?:at \d{1,2}\b|\d{1,2} ?[ap]m\b|\d{1,2}:\d\d)", re.IGNORECASE)
_CLOCKED = timedelta(days=14)  # a shorter time between two clocks is asked for in hours
_TURNS = re.compile(r"\bturn(?:s|ing|ed)? (\d{1,3})\b", re.IGNORECASE)
_BORN = re.compile(r"\bborn\b", re.IGNORECASE)
_LONG = 700  # days, from which a length of time is given in years


def duration_of(parts: Parts) -> Working | None:
    """A length of time: nights, years up to now, or between two days."""
    if tells("asks for nights", parts.question):
        return _stay(parts)
    is_of_amounts = "difference" in parts.wish.kinds and len({figure.unit.id for figure in parts.figures}) > 1
    if is_of_amounts or tells("asks of a habit", parts.question):
        return None
    return lasting_of(parts) or (None if _is_stated(parts) else _between(parts))


def _is_stated(parts: Parts) -> bool:
    """Whether a sentence says itself how long something is that is asked for, or lasts less than a day."""
    if tells("asks for a number of times", parts.question):
        return False
    return any(
        tells("lasts hours", sentence) or (tells("lasts days", sentence) and parts.words & stems(sentence))
        for _, sentence in parts.sentences
    )


def _stay(parts: Parts) -> Working | None:
    """The nights of a time that one unit names: "from the 20th of December to the 3rd of January"."""
    ranges = [event for event in parts.events if event.precision == "day" and event.days.first < event.days.last]
    event = parts.clearest(ranges, days_of)
    if not event or not parts.is_about(event) or parts.may_have_moved(event):
        return None
    nights = (event.days.last - event.days.first).days
    return line_of(f"{write_dates(event.days)} is {nights} night{'s' * (nights != 1)}", event)


def lasting_of(parts: Parts) -> Working | None:
    """How many years something has lasted that was told to have lasted some: "she's been there 19 years"."""
    years = [
        figure for figure in parts.figures if figure.amount.unit == "years" and tells("has lasted", figure.sentence)
    ]
    figure = (
        parts.clearest(years, lambda figure: figure.amount) if tells("asks how long by now", parts.question) else None
    )
    if not figure or not figure.count_shared(parts.words):
        return None
    said = figure.unit.time.date()
    now = round(figure.amount.value + Fraction((parts.day - said).days) / 365)
    if now == figure.amount.value:
        return None
    told = f"{write_amount(figure.amount.value, 'years')}, said on {write_day(said)}"
    return line_of(f"{told}, are about {now} years on {write_day(parts.day)}", figure)


def _between(parts: Parts) -> Working | None:
    pair = _two_events(parts)
    if pair is None or any(parts.may_have_moved(event, pair) for event in pair):
        return None
    start, end = sorted(pair, key=lambda event: event.days)
    if all(_CLOCK.search(event.sentence) for event in pair) and end.days.first - start.days.last < _CLOCKED:
        return None
    first, last = start.days.first, end.days.first
    if start.precision == end.precision == "day":
        return line_of(
            f"{write_dates(DateRange(first, last))} is {_write_length(first, last, parts.in_months)}", start, end
        )
    years = last.year - first.year
    return line_of(f"{first.year} to {last.year} is {years} years", start, end) if years > 1 else None


def _two_events(parts: Parts) -> tuple[Event, Event] | None:
    """The two events that a length of time lies between: the only ones, or those that the question's words tell."""
    for events in (parts.days, parts.years):
        ranked = parts.rank(events, parts.words, days_of)
        if len(ranked) == 2:
            return ranked[0], ranked[1]
        if len(ranked) > 2 and parts.leads(ranked[1], ranked[2], parts.words):
            return None if _is_contested(parts, *ranked) else (ranked[0], ranked[1])
        if len(ranked) > 2:
            return _by_halves(parts, events) or _by_units(parts, events) or _past_pair(parts, events)
    return None


def _past_pair(parts: Parts, events: Sequence[Event]) -> tuple[Event, Event] | None:
    """The only two events that lay behind when they were told, each in a unit of its own."""
    past = parts.rank([event for event in events if not event.is_ahead], parts.words, days_of)
    return (past[0], past[1]) if len(past) == 2 and past[0].unit.id != past[1].unit.id else None


def _is_contested(parts: Parts, first: Event, second: Event, *others: Event) -> bool:
    """Whether the pair is of one sentence, or another event's clause has words of the question that theirs lack."""
    theirs = first.clause | second.clause
    return first.sentence == second.sentence or any(parts.words & other.clause - theirs for other in others)


def _by_halves(parts: Parts, events: Sequence[Event]) -> tuple[Event, Event] | None:
    """The events that the two halves of the question are about, by their words."""
    start, end = map(stems, parts.wish.parts or ("", ""))
    return _different(
        *(
            parts.clearest([event for event in events if words & event.sentences], days_of, words)
            for words in (start - end, end - start)
        )
    )


def _by_units(parts: Parts, events: Sequence[Event]) -> tuple[Event, Event] | None:
    """The clearest event of each of the only two units that have any."""
    units = dict.fromkeys(event.unit.id for event in events)
    if len(units) != 2:
        return None
    return _different(
        *(parts.clearest([event for event in events if event.unit.id == unit], days_of) for unit in units)
    )


def _different(first: Event | None, last: Event | None) -> tuple[Event, Event] | None:
    return (first, last) if first and last and first.days != last.days else None


def time_since(parts: Parts) -> Working | None:
    """The time since or until a day."""
    event = None if parts.is_off else parts.clearest(parts.days, days_of)
    if not event or not parts.is_tied(event) or not parts.is_about(event) or event.days.first == parts.day:
        return None
    if event.days.first > parts.day and tells("asks since", parts.question):
        return None
    if tells("asks what has lasted", parts.question) and tells("lasts days", event.sentence):  # that says how long
        return None
    first, last = sorted((event.days.first, parts.day))
    direction = "before" if event.days.first < parts.day else "after"
    today = write_day(parts.day)
    text = f"{write_dates(event.days)} is {_write_length(first, last, parts.in_months)} {direction} today, {today}"
    return line_of(text, event)


def age_of(parts: Parts) -> Working | None:
    """An age today, or when something is that the question names: "when she started", "at the reunion"."""
    born, sources = _birth(parts)
    if moment := moment_of_age(parts.question):
        words = stems(moment)
        others = [event for event in parts.events if event not in sources and words & event.sentences]
        event = parts.clearest(others, days_of, words) if born else None
        return _age_on(born, event.days, *sources, event) if born and event else None
    if born:
        return _age_on(born, DateRange(parts.day, parts.day), *sources)
    event = parts.clearest([event for event in parts.days if _TURNS.search(event.sentence)], days_of)
    match = _TURNS.search(event.sentence) if event else None
    if not event or not match or not event.days.first <= parts.day or not parts.is_about(event):
        return _stated_age(parts)
    age = int(match[1]) + _full_years(event.days.first, parts.day)
    return line_of(f"{match[1]} on {write_dates(event.days)}, {age} years old on {write_day(parts.day)}", event)


def _stated_age(parts: Parts) -> Working | None:
    """An age now, from the only one that was told, whenever the birthday is."""
    age = parts.clearest(parts.ages, lambda age: age.amount.value)
    if not age or not (parts.is_chosen or parts.words & age.sentences):
        return None
    day = age.unit.time.date()
    least = int(age.amount.value) + _full_years(day, parts.day)
    today = f", {least} or {least + 1} on {write_day(parts.day)}" if parts.day > day else ""
    return line_of(f"{age.amount.value} years old on {write_day(day)}{today}", age)


def _birth(parts: Parts) -> tuple[date | None, list[Event]]:
    """The day of a birth, and the events that tell it: "born on 3 May 2016", or a birthday and the year of birth."""
    past = [event for event in parts.events if event.days.first <= parts.day and _BORN.search(event.sentence)]
    event = parts.clearest([event for event in past if event in parts.days], days_of)
    if event:
        return event.days.first, [event]
    year = parts.clearest([event for event in past if event.precision == "year"], days_of)
    birthdays = [event for event in parts.days if "birthday" in event.sentence.lower()]
    birthday = parts.clearest(birthdays, lambda event: (event.days.first.month, event.days.first.day)) if year else None
    if not year or not birthday or birthday.unit.id != year.unit.id:
        return None, []
    return birthday.days.first.replace(year=year.days.first.year), [year, birthday]


def _age_on(born: date, days: DateRange, *events: Event) -> Working | None:
    age, later = (_full_years(born, day) for day in days)
    text = f"born on {write_day(born)}, {age} years old {'on' if days.first == days.last else 'in'} {write_dates(days)}"
    return line_of(text, *events) if 0 <= age == later else None


def times_of(parts: Parts) -> Working | None:
    """How many times the user told that something took place: each unit names one day, so there may be more."""
    past = [event for event in parts.days if event.days.last <= parts.day and parts.is_relevant(event)]
    by_unit = {event.unit.id: event for event in past if len(parts.words & event.sentences) > 1}
    events = sorted(by_unit.values(), key=lambda event: event.days)
    if len(events) < 2 or len({event.days for event in past}) > len(events):
        return None
    if any("times" in figure.amount.nouns for figure in parts.figures):  # somebody counted them
        return None
    days = ", ".join(write_dates(event.days) for event in events)
    return line_of(f"at least {len(events)} times, as far as you said when: {days}", *events)


def order_of(parts: Parts) -> Working | None:
    """Which of the two things that the question names came first."""
    names = alternatives(parts.question)
    if not names:
        return None
    words = [stems(names[0]) - stems(names[1]), stems(names[1]) - stems(names[0])]
    chosen = [parts.clearest([event for event in parts.events if own & event.sentences], days_of, own) for own in words]
    pairs = sorted([(event.days, name, event) for event, name in zip(chosen, names, strict=True) if event])
    if len(pairs) < 2 or pairs[0][0].last >= pairs[1][0].first or pairs[0][2].unit.id == pairs[1][2].unit.id:
        return None
    (_, name_a, a), (_, name_b, b) = pairs
    return line_of(f"{name_a} ({write_dates(a.days)}) came before {name_b} ({write_dates(b.days)})", a, b)


def _full_years(first: date, last: date) -> int:
    return last.year - first.year - ((last.month, last.day) < (first.month, first.day))


def _write_length(first: date, last: date, in_months: bool) -> str:
    """A length of time in days, and in weeks, months or years."""
    days = (last - first).days
    if in_months:
        return f"{days:,} days ({round(days / _MONTH)} months)"
    if days >= _LONG:
        return f"{_full_years(first, last)} years ({days:,} days)"
    weeks, odd = divmod(days, _WEEK)
    if not weeks:
        return f"{days} day{'s' * (days != 1)}"
    about = weeks + (2 * odd > _WEEK)
    return f"{days} days ({'about ' * bool(odd)}{about} week{'s' * (about != 1)})"
