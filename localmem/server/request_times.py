"""Times in requests: a date or a time in ISO 8601, by the user's clock where it names no zone. A number is none."""

from datetime import MAXYEAR, MINYEAR, datetime, tzinfo
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from localmem.times.moments import read_moment
from localmem.times.zones import in_log_zone


def _read(value: Any, *, end: bool = False) -> datetime:  # noqa: ANN401  # as it was sent
    try:
        time = value if isinstance(value, datetime) else read_moment(value, end=end)
    except (TypeError, ValueError):
        time = None
    if time is None or not MINYEAR < time.year < MAXYEAR:
        raise PydanticCustomError("moment", "not a time")
    return time


Moment = Annotated[datetime, BeforeValidator(_read)]  # a date means its beginning
EndMoment = Annotated[datetime, BeforeValidator(partial(_read, end=True))]  # a date means the end of that day


def in_request_zone(time: datetime | None, zone: tzinfo | None) -> datetime | None:
    """The time of a request by the clocks of its zone, None being that of this machine; None for no time."""
    return time and in_log_zone(time, zone)
