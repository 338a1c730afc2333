"""A result that was worked out, as a line with its sources."""

from collections.abc import Iterable
from datetime import date

from localmem.times.annotate import write_dates
from localmem.times.unit_parts import Event, Figure
from localmem.types import DateRange, Unit, Working


def line_of(text: str, *parts: Event | Figure) -> Working:
    """The result with the turns of its parts."""
    return Working(text, sources_of(part.unit for part in parts))


def sources_of(units: Iterable[Unit]) -> tuple[str, ...]:
    """The turn of each unit, once."""
    return tuple(dict.fromkeys(unit.sources[-1] if unit.sources else unit.id for unit in units))


def write_day(day: date) -> str:
    """A day as people write it: "21 November 2025"."""
    return write_dates(DateRange(day, day))
