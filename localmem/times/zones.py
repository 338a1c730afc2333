"""A user's time zone, and whether they write the day or the month first. Reads no clock and no setting.

A turn keeps the offset that its speaker's clock had, so its date is the speaker's wherever it is read later.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from localmem.errors import BadInput

_YEARS = range(1900, 2200)  # in which a conversation may be; programs write the year 1 or 9999 for no time at all
_MONTH_FIRST = {"US", "PH", "PR", "GU"}
_NEITHER = {"CA", "CN", "HU", "IR", "JP", "KR", "LT", "MN", "SE", "TW", "ZA"}  # the year comes first, or customs differ


def read_zone(name: str) -> tzinfo:
    """The zone of an IANA name. Raises BadInput."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(f"{name!r} is not a time zone; give an IANA name such as Europe/Berlin") from error


def check_year(time: datetime) -> datetime:
    """The same time. Raises ValueError where no conversation can be of its year."""
    if time.year not in _YEARS:
        raise ValueError(f"the year {time.year} is none of a conversation")
    return time


def in_zone(time: datetime, zone: tzinfo | None) -> datetime:
    """The same moment by the clocks of a zone, None being this machine's, with their offset at that moment."""
    local = time.astimezone(zone)
    return local.replace(tzinfo=timezone(local.utcoffset() or timedelta()), fold=0)


def in_log_zone(time: datetime, zone: tzinfo | None, earliest: datetime | None = None) -> datetime:
    """A time of a log by the clocks of a zone: one without a zone is meant so, one in UTC is converted, others stay.

    Where clocks are set back an hour occurs twice: the second is meant if the first is before `earliest`, the time of
    the turn before.
    """
    if time.tzinfo is not None:
        return in_zone(time, zone) if time.utcoffset() == timedelta() and zone is not UTC else time
    first, second = (in_zone(time.replace(tzinfo=zone, fold=fold), zone) for fold in (0, 1))
    return second if earliest and first < earliest <= second else first


def writes_day_first(environment: Mapping[str, str]) -> bool | None:
    """Whether the locale of a process writes the day before the month; None where it does not tell."""
    names = (environment.get(variable) for variable in ("LC_ALL", "LC_TIME", "LANG"))
    match = re.match(r"[a-z]{2,3}_([A-Z]{2})", next(filter(None, names), ""))
    return None if match is None or match[1] in _NEITHER else match[1] not in _MONTH_FIRST
