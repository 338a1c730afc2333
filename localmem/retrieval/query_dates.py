"""Dates in an English question, as the range of time that it asks about.

Patterns decide what counts as a date, so that "May I" and "Sun" do not; dateparser reads it. Does not depend on units,
and reads no clock: "yesterday" is relative to the time of the question.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple

import regex  # type: ignore[import-untyped]  # publishes no types

_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec)\.?"
)
_WEEKDAY = r"(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_DAY = r"(?:the )?\d{1,2}(?:st|nd|rd|th)?"
_NUMBER = r"(?:\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_DATE = regex.compile(
    rf"(?:\b(?P<bound>(?i:before|after|since|until))\s+(?:the\s+)?)?\b(?P<date>"
    rf"\d{{4}}-\d{{2}}-\d{{2}}"
    rf"|{_DAY}(?: of)? {_MONTH}(?:,? \d{{4}})?"
    rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?(?!\d)"
    rf"|{_MONTH}(?:,| of)? \d{{4}}"
    rf"|(?<=\b(?i:in|during|last|since|before|after|until) ){_MONTH}"
    rf"|(?<=\b(?i:in|during|of|since|before|after|until) )(?:19|20)\d{{2}}(?!\d)"
    rf"|(?i:the day before yesterday|yesterday|today|last night|this morning)"
    rf"|(?i:last|this) (?:(?i:week|month|year)|{_WEEKDAY})"
    rf"|(?<=\b(?i:on|since|before|after|until) ){_WEEKDAY}"
    rf"|(?i:{_NUMBER} (?:day|week|month|year)s? ago)"
    rf")\b",
)
_YEAR = regex.compile(r"\b\d{4}\b")
_ANY_DAY = datetime(2000, 1, 15)  # noqa: DTZ001  # dateparser needs one; a date with a year does not depend on it
_MOMENT = timedelta(microseconds=1)


class Range(NamedTuple):
    """From `since` to `until`, both included; None is unbounded."""

    since: datetime | None
    until: datetime | None


def read_range(text: str, now: datetime | None) -> Range | None:
    """The range that covers all dates of a question; None for a question without readable dates.

    The precision of a date is its length: a day, a week from Monday, a month, a year. "before", "after", "since" and
    "until" leave one end open. A relative date, or one without a year, is the last such one before `now`.
    """
    matches = _DATE.finditer(text)
    ranges = [part for match in matches if (part := _read(match["date"], match["bound"], now)) is not None]
    if not ranges:
        return None
    starts, ends = [part.since for part in ranges], [part.until for part in ranges]
    since = None if None in starts else min(start for start in starts if start)
    return Range(since, None if None in ends else max(end for end in ends if end))


def _read(words: str, bound: str | None, now: datetime | None) -> Range | None:
    from dateparser.date import DateDataParser  # type: ignore[import-untyped]  # publishes no types

    if now is None and not _YEAR.search(words):
        return None
    zone = now.tzinfo if now else UTC
    base = now.replace(tzinfo=None) if now else _ANY_DAY
    settings = {"RELATIVE_BASE": base, "PREFER_DATES_FROM": "past", "TIMEZONE": "UTC", "DATE_ORDER": "YMD"}
    parsed = DateDataParser(languages=["en"], settings=settings).get_date_data(words)
    if parsed.date_obj is None:
        return None
    try:
        return _bound(*_span(parsed.date_obj.replace(tzinfo=None), parsed.period, zone), (bound or "").lower())
    except (OverflowError, ValueError):  # the calendar ends with the year 9999
        return None


def _bound(first: datetime, last: datetime, bound: str) -> Range:
    match bound:
        case "before":
            return Range(None, first - _MOMENT)
        case "until":
            return Range(None, last)
        case "after":
            return Range(last + _MOMENT, None)
        case "since":
            return Range(first, None)
    return Range(first, last)


def _span(date: datetime, period: str, zone: tzinfo | None) -> tuple[datetime, datetime]:
    """The first and the last moment of the day, week, month or year that the date names."""
    day = date.replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case "week":
            first = day - timedelta(days=day.weekday())
            after = first + timedelta(days=7)
        case "month":
            first = day.replace(day=1)
            after = (first + timedelta(days=32)).replace(day=1)
        case "year":
            first = day.replace(month=1, day=1)
            after = first.replace(year=first.year + 1)
        case _:
            first, after = day, day + timedelta(days=1)
    return first.replace(tzinfo=zone), (after - _MOMENT).replace(tzinfo=zone)
