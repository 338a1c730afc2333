"""What follows from what was said: dates, lengths of time, ages, orders, sums and differences, each with its sources.

`work_out` reads a question and the units that were recalled for it, which are to be current. It gives a result only
where every part is in these units, exact and without a rival; otherwise none. Knows no memory system.
"""

import re
from calendar import day_name
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from fractions import Fraction

from localmem.times.amounts import convert, write_amount
from localmem.times.annotate import write_dates
from localmem.times.parts import Event, Figure, Parts, Relevance
from localmem.times.questions import Kind, alternatives, counts_things, listed_things, read_question, stems
from localmem.times.resolver import find_times
from localmem.types import DateRange, Unit, Working

_WEEK = 7
_MONTH = 365.2425 / 12
_FAR_APART = 100  # times: amounts that differ as much are hardly of one kind, as "489k" and "501" are not
_WEEKS_AGO = re.compile(r"\bweeks? ago$")
_CHAIN = re.compile(
    r"(?P<count>(?:the \w+day|[\w-]+ (?:days?|weeks?|fortnights?|months?)) (?:before|after|from)) "
    r"(?P<anchor>(?:the|my|our|your|his|her|their|we|i|he|she|they|it)\b[^.;,!?]*)",
    re.IGNORECASE,
)
_CLOCK = re.compile(r"\b(?:at \d{1,2}\b|\d{1,2} ?[ap]m\b|\d{1,2}:\d\d)", re.IGNORECASE)
_CLOCKED = timedelta(days=14)  # a shorter time between two clocks is asked for in hours
_TURNS = re.compile(r"\bturn(?:s|ing|ed)? (\d{1,3})\b", re.IGNORECASE)
_DAYS = dict(zip(("MO", "TU", "WE", "TH", "FR", "SA", "SU"), day_name, strict=True))
_LONG = 700  # days, from which a length of time is given in years


def work_out(question: str, day: date, units: Sequence[Unit], relevance: Relevance | None = None) -> list[Working]:
    """What a question of this day asks to be worked out, from current units, the best first; mostly one result or none.

    With `relevance` it is told by sentences which of many units are meant; without, by words, as suits a few.
    """
    wish = read_question(question, day)
    if not wish.kinds or not units:
        return []
    parts = Parts(question, day, wish, units, relevance)
    results = (_RULES[kind](parts) for kind in wish.kinds)
    return next(([working] for working in results if working), [])


def write_workings(workings: Iterable[Working]) -> str:
    """Workings as lines of a prompt."""
    return "\n".join(f"worked out: {working.text} [turns {', '.join(working.sources)}]" for working in workings)


def _working(text: str, *parts: Event | Figure) -> Working:
    return Working(text, _sources(part.unit for part in parts))


def _sources(units: Iterable[Unit]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(unit.sources[-1] if unit.sources else unit.id for unit in units))


# -- times


def _days(event: Event) -> DateRange:
    return event.days


def _date(parts: Parts) -> Working | None:
    if parts.is_off:
        return None
    return _chained_date(parts) or _named_date(parts)


def _named_date(parts: Parts) -> Working | None:
    """The day that a unit names, or a longer time where no unit names a day."""
    event = parts.clearest(parts.expected_events(parts.days or parts.events), _days)
    if not event or not parts.is_about(event) or parts.may_have_moved(event):
        return None
    if not parts.days and not parts.words & event.sentences:
        return None
    said = event.unit.time.date()
    day = f"{event.days.first:%A} " if event.days.first == event.days.last else ""
    weeks = round((said - event.days.first).days / _WEEK) if _WEEKS_AGO.search(event.words) else 0
    exact = f"about {_write_day(said - timedelta(_WEEK * weeks))}, " if weeks else ""
    return _working(f'"{event.words}", said on {_write_day(said)}, is {exact}{day}{write_dates(event.days)}', event)


def _chained_date(parts: Parts) -> Working | None:
    """The day that is counted from another that a unit names: "two weeks before the congress"."""
    chains = [(unit, sentence, match) for unit, sentence in parts.sentences if (match := _CHAIN.search(sentence))]
    asked = [chain for chain in chains if parts.words & stems(chain[1].replace(chain[2]["anchor"], ""))]
    if len(asked) != 1 or len(chains) > 1:
        return None
    unit, sentence, match = asked[0]
    words = stems(match["anchor"])
    beside = [event for event in parts.days if event.sentence == sentence and event.words in match["anchor"]]
    others = [event for event in parts.days if event.sentence != sentence and words & stems(event.sentence)]
    anchor = parts.clearest(beside or others, _days, words)
    spans = find_times(f"{match['count']} today", anchor.days.first, language="en") if anchor else []
    if anchor is None or len(spans) != 1 or len(spans[0].readings) != 1 or parts.may_have_moved(anchor):
        return None
    days = spans[0].readings[0]
    counted = f'"{match[0].strip()}", said on {_write_day(unit.time.date())}'
    result = f"{counted}, is {days.first:%A} {write_dates(days)}, counted from {write_dates(anchor.days)}"
    return Working(result, _sources((unit, anchor.unit)))


def _duration(parts: Parts) -> Working | None:
    pair = _two_events(parts)
    if pair is None or any(parts.may_have_moved(event, pair) for event in pair):
        return None
    start, end = sorted(pair, key=lambda event: event.days)
    if all(_CLOCK.search(event.sentence) for event in pair) and end.days.first - start.days.last < _CLOCKED:
        return None
    first, last = start.days.first, end.days.first
    if start.precision == end.precision == "day":
        return _working(
            f"{write_dates(DateRange(first, last))} is {_write_length(first, last, parts.in_months)}", start, end
        )
    years = last.year - first.year
    return _working(f"{first.year} to {last.year} is {years} years", start, end) if years > 1 else None


def _two_events(parts: Parts) -> tuple[Event, Event] | None:
    """The two events that a length of time lies between: the only ones, or those that the question's words tell."""
    for events in (parts.days, parts.years):
        ranked = parts.rank(events, parts.words, _days)
        if len(ranked) == 2 or (len(ranked) > 2 and parts.leads(ranked[1], ranked[2], parts.words)):
            return ranked[0], ranked[1]
        if len(ranked) > 2:
            return _by_halves(parts, events) or _by_units(parts, events)
    return None


def _by_halves(parts: Parts, events: Sequence[Event]) -> tuple[Event, Event] | None:
    """The events that the two halves of the question are about, by their words."""
    start, end = map(stems, parts.wish.parts or ("", ""))
    return _different(
        *(
            parts.clearest([event for event in events if words & event.sentences], _days, words)
            for words in (start - end, end - start)
        )
    )


def _by_units(parts: Parts, events: Sequence[Event]) -> tuple[Event, Event] | None:
    """The clearest event of each of the only two units that have any."""
    units = dict.fromkeys(event.unit.id for event in events)
    if len(units) != 2:
        return None
    return _different(*(parts.clearest([event for event in events if event.unit.id == unit], _days) for unit in units))


def _different(first: Event | None, last: Event | None) -> tuple[Event, Event] | None:
    return (first, last) if first and last and first.days != last.days else None


def _ago(parts: Parts) -> Working | None:
    event = None if parts.is_off else parts.clearest(parts.days, _days)
    if not event or not parts.is_about(event) or event.days.first == parts.day:
        return None
    first, last = sorted((event.days.first, parts.day))
    direction = "before" if event.days.first < parts.day else "after"
    today = _write_day(parts.day)
    text = f"{write_dates(event.days)} is {_write_length(first, last, parts.in_months)} {direction} today, {today}"
    return _working(text, event)


def _age(parts: Parts) -> Working | None:
    event = parts.clearest([event for event in parts.days if "born" in event.clause], _days)
    if event:
        age = _full_years(event.days.first, parts.day)
        return _working(f"born on {write_dates(event.days)}, {age} years old on {_write_day(parts.day)}", event)
    event = parts.clearest([event for event in parts.days if _TURNS.search(event.sentence)], _days)
    match = _TURNS.search(event.sentence) if event else None
    if not event or not match or not event.days.first <= parts.day or not parts.is_about(event):
        return None
    age = int(match[1]) + _full_years(event.days.first, parts.day)
    return _working(f"{match[1]} on {write_dates(event.days)}, {age} years old on {_write_day(parts.day)}", event)


def _frequency(parts: Parts) -> Working | None:
    """How often something is said to recur."""
    habit = parts.clearest(parts.habits, lambda event: event.repeats)
    if not habit or not parts.is_about(habit) or not (rule := _write_rule(habit.repeats)):
        return None
    return _working(f'"{habit.words}", said on {_write_day(habit.unit.time.date())}, is {rule}', habit)


def _times_counted(parts: Parts) -> Working | None:
    """How many times the user told that something took place: each unit names one day, so there may be more."""
    past = [event for event in parts.days if event.days.last <= parts.day and parts.is_relevant(event)]
    by_unit = {event.unit.id: event for event in past if len(parts.words & event.sentences) > 1}
    events = sorted(by_unit.values(), key=lambda event: event.days)
    if len(events) < 2 or len({event.days for event in past}) > len(events):
        return None
    days = ", ".join(write_dates(event.days) for event in events)
    return _working(f"at least {len(events)} times, as far as you said when: {days}", *events)


def _order(parts: Parts) -> Working | None:
    names = alternatives(parts.question)
    if not names:
        return None
    words = [stems(names[0]) - stems(names[1]), stems(names[1]) - stems(names[0])]
    chosen = [parts.clearest([event for event in parts.events if own & event.sentences], _days, own) for own in words]
    pairs = sorted([(event.days, name, event) for event, name in zip(chosen, names, strict=True) if event])
    if len(pairs) < 2 or pairs[0][0].last >= pairs[1][0].first or pairs[0][2].unit.id == pairs[1][2].unit.id:
        return None
    (_, name_a, a), (_, name_b, b) = pairs
    return _working(f"{name_a} ({write_dates(a.days)}) came before {name_b} ({write_dates(b.days)})", a, b)


# -- amounts


def _total(parts: Parts) -> Working | None:
    if counts_things(parts.question):
        return None
    return _listed_total(parts) or (None if parts.lists_more else _sum(_two_figures(parts)))


def _listed_total(parts: Parts) -> Working | None:
    """The sum of one amount for each thing that the question lists, by its own words."""
    chosen: dict[tuple[str, int], Figure] = {}
    for words in listed_things(parts.question):
        figures = [figure for figure in parts.figures if words & figure.sentences and parts.is_relevant(figure)]
        if not figures:
            continue
        figure = parts.clearest(figures, lambda figure: figure.amount, words)
        if figure is None or parts.has_other_price(figure):
            return None
        chosen[figure.unit.id, figure.amount.at] = figure
    return _sum(list(chosen.values()))


def _sum(figures: Sequence[Figure]) -> Working | None:
    if len(figures) < 2 or len({figure.dimension for figure in figures if figure.dimension}) > 1:
        return None
    unit, values = _same_unit(figures)
    amounts = [write_amount(value, unit) for value in values]
    listed = f"{', '.join(amounts[:-1])} and {amounts[-1]}"
    return _working(f"{listed} are {write_amount(sum(values, Fraction(0)), unit)} together", *figures)


def _difference(parts: Parts) -> Working | None:
    figures = _two_figures(parts)
    if not figures or (parts.wish.remains and not parts.is_settled(figures)):
        return None
    unit, values = _same_unit(figures)
    less, more = sorted(values)
    result = f"{write_amount(more, unit)} less {write_amount(less, unit)} is {write_amount(more - less, unit)}"
    return _working(result, *figures) if less < more and more - less < _FAR_APART * less else None


def _two_figures(parts: Parts) -> list[Figure]:
    """The amounts of two units that are asked for; none if a unit has several, or a third unit may be meant."""
    by_unit: dict[str, list[Figure]] = {}
    for figure in filter(parts.is_relevant, parts.figures):
        by_unit.setdefault(figure.unit.id, []).append(figure)
    chosen = [parts.figure_of(figures) for figures in by_unit.values()]
    if None in chosen:
        return []
    figures = parts.rank([figure for figure in chosen if figure], parts.words, lambda figure: figure.unit.id)
    if len(figures) > 2 and not parts.leads(figures[1], figures[2], parts.words):
        return []
    dimensions = {figure.dimension for figure in figures[:2] if figure.dimension}
    return figures[:2] if len(figures) > 1 and len(dimensions) < 2 else []


def _same_unit(figures: Sequence[Figure]) -> tuple[str, list[Fraction]]:
    """The values in the unit of the first figure that has one."""
    unit = next((figure.amount.unit for figure in figures if figure.amount.unit), "")
    return unit, [convert(figure.amount, unit) for figure in figures]


_RULES: dict[Kind, Callable[[Parts], Working | None]] = {
    "order": _order,
    "often": _frequency,
    "times": _times_counted,
    "age": _age,
    "ago": _ago,
    "total": _total,
    "listed": lambda parts: None if counts_things(parts.question) else _listed_total(parts),
    "difference": _difference,
    "duration": _duration,
    "when": _date,
}


# -- writing


def _write_day(day: date) -> str:
    return write_dates(DateRange(day, day))


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
