"""Times in requests: a date or a time in ISO 8601, by the user's clock where it names no zone. A number is none."""

from datetime import MAXYEAR, MINYEAR, datetime, tzinfo
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from localmem.times.zones import in_log_zone

_DATE_LENGTH = len("2026-03-02")


def _read(value: Any) -> datetime:  # noqa: ANN401  # as it was sent
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        time = None
    if time is None or not MINYEAR < time.year < MAXYEAR:
        raise PydanticCustomError("moment", "not a time")
    return time


def _read_end(value: object) -> datetime:
    time = _read(value)
    is_date = isinstance(value, str) and len(value) <= _DATE_LENGTH
    return time.replace(hour=23, minute=59, second=59, microsecond=999999) if is_date else time


Moment = Annotated[datetime, BeforeValidator(_read)]  # a date means its beginning
EndMoment = Annotated[datetime, BeforeValidator(_read_end)]  # a date means the end of that day


def in_request_zone(time: datetime | None, zone: tzinfo | None) -> datetime | None:
    """The time of a request by the clocks of its zone, None being that of this machine; None for no time."""
    return time and in_log_zone(time, zone)
