"""Periods: their forms, and the two times of a unit that they limit."""

from datetime import UTC, date, datetime

import pytest

from localmem.errors import BadInput
from localmem.times.periods import Periods, parse_period
from localmem.types import DateRange, Unit

MAY, JUNE = parse_period("2025-05"), parse_period("2025-06")


def unit(text: str) -> Unit:
    june = datetime(2025, 6, 12, 9, tzinfo=UTC)
    return Unit("u", f"User: {text}", text, "statement", "User", "s", ("t",), june, june)


@pytest.mark.parametrize(
    "text, first, last",
    [
        ("2025", date(2025, 1, 1), date(2025, 12, 31)),
        ("2024-02", date(2024, 2, 1), date(2024, 2, 29)),
        ("2025-03-01", date(2025, 3, 1), date(2025, 3, 1)),
        ("2025-03-01..2025-03-31", date(2025, 3, 1), date(2025, 3, 31)),
        ("2025-03..2025", date(2025, 3, 1), date(2025, 12, 31)),
        ("2025-03..", date(2025, 3, 1), date.max),
        ("..2025-03", date.min, date(2025, 3, 31)),
    ],
)
def test_forms(text: str, first: date, last: date) -> None:
    assert parse_period(text) == DateRange(first, last)


@pytest.mark.parametrize("text", ["", "..", "March", "2025-3", "2025-13", "2025-02-30", "0000", "2025-05..2025-03"])
def test_anything_else_is_an_error_of_one_line(text: str) -> None:
    with pytest.raises(BadInput) as error:
        parse_period(text)
    assert "\n" not in str(error.value)


def test_what_happened_and_when_it_was_told_are_two_things() -> None:
    moved = unit("we moved on 3 May 2025")
    assert Periods(happened=MAY).hold(moved)
    assert not Periods(happened=JUNE).hold(moved)
    assert Periods(learned=JUNE).hold(moved)
    assert not Periods(learned=MAY).hold(moved)
    assert not Periods(happened=JUNE, learned=JUNE).hold(moved)


def test_an_event_without_a_day_took_place_when_it_was_told() -> None:
    assert Periods(happened=JUNE).hold(unit("we moved"))
    assert not Periods(happened=MAY).hold(unit("we moved"))


def test_no_limit_holds_all() -> None:
    assert Periods().hold(unit("we moved"))
    assert not Periods()
