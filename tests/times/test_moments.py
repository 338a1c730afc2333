"""Moments: a date alone is a whole day, however ISO 8601 writes it, and a time is itself."""

from datetime import date, datetime, time

import pytest

from localmem.cli.options import Moment
from localmem.times.moments import read_moment


@pytest.mark.parametrize("text", ["2026-03-02", "20260302", "2026-W10-1"])
def test_a_date_alone_begins_or_ends_its_day(text: str) -> None:
    day = date(2026, 3, 2)
    assert read_moment(text) == datetime.combine(day, time.min)
    assert read_moment(text, end=True) == datetime.combine(day, time.max)
    assert Moment(end=True).convert(text, None, None).replace(tzinfo=None) == read_moment(text, end=True)


@pytest.mark.parametrize("text", ["2026-03-02T18:05", "2026-03-02T00:00+01:00"])
def test_a_time_is_itself(text: str) -> None:
    assert read_moment(text) == read_moment(text, end=True) == datetime.fromisoformat(text)


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-31", "2026-03"])
def test_another_text_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid|day is out"):
        read_moment(text)
