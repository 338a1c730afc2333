"""Moments as options and requests write them. Knows no zone: whose clock is meant is the caller's to say."""

from datetime import date, datetime, time


def read_moment(text: str, *, end: bool = False) -> datetime:
    """A date or time in ISO 8601; a date alone is its beginning, or with `end` the last moment of that day.

    Raises ValueError.
    """
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)
    return datetime.combine(day, time.max if end else time.min)
