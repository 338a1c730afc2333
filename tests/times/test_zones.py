"""A user's time zone, and which of day and month they write first."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo

import pytest

from localmem.errors import BadInput
from localmem.times.zones import in_log_zone, in_zone, read_zone, writes_day_first

BERLIN = read_zone("Europe/Berlin")


@pytest.mark.parametrize("name", ["Mars/Base", "", "Europe", "../etc/passwd", "europe\0berlin", "UTC+25"])
def test_a_name_that_is_no_zone_is_an_error_with_a_cure(name: str) -> None:
    with pytest.raises(BadInput, match=r"is not a time zone; give an IANA name such as Europe/Berlin$"):
        read_zone(name)


def test_a_moment_keeps_its_place_in_time_and_gets_the_offset_of_its_day() -> None:
    winter, summer = datetime(2025, 1, 31, 23, 30, tzinfo=UTC), datetime(2025, 7, 31, 22, 30, tzinfo=UTC)
    assert in_zone(winter, BERLIN).isoformat() == "2025-02-01T00:30:00+01:00"
    assert in_zone(summer, BERLIN).isoformat() == "2025-08-01T00:30:00+02:00"
    assert in_zone(summer, BERLIN) == summer


def test_both_half_past_twos_of_the_end_of_summer_time_stay_apart() -> None:
    first, second = (in_zone(datetime(2025, 10, 26, hour, 30, tzinfo=UTC), BERLIN) for hour in (0, 1))
    assert [moment.isoformat() for moment in (first, second)] == [
        "2025-10-26T02:30:00+02:00",
        "2025-10-26T02:30:00+01:00",
    ]
    assert second - first == timedelta(hours=1)
    assert datetime.fromisoformat(second.isoformat()) == second


@pytest.mark.parametrize(
    "written, zone, read",
    [
        ("2025-03-02T23:30", BERLIN, "2025-03-02T23:30:00+01:00"),
        ("2025-03-02T23:30+00:00", BERLIN, "2025-03-03T00:30:00+01:00"),
        ("2025-03-02T23:30-05:00", BERLIN, "2025-03-02T23:30:00-05:00"),
        ("2025-03-02T23:30", UTC, "2025-03-02T23:30:00+00:00"),
        ("2025-03-30T02:30", BERLIN, "2025-03-30T02:30:00+01:00"),  # no clock showed it
    ],
)
def test_a_time_of_a_log_is_read_by_the_users_clock(written: str, zone: tzinfo, read: str) -> None:
    assert in_log_zone(datetime.fromisoformat(written), zone).isoformat() == read


def test_the_repeated_hour_of_a_log_goes_on_where_it_was() -> None:
    written = datetime(2025, 10, 26, 2, 10)  # noqa: DTZ001  # as in a log without zones
    earlier = in_log_zone(written.replace(minute=50), BERLIN)
    assert in_log_zone(written, BERLIN, earlier).isoformat() == "2025-10-26T02:10:00+01:00"
    assert in_log_zone(written, BERLIN, earlier + timedelta(hours=2)).isoformat() == "2025-10-26T02:10:00+02:00"


def test_without_a_zone_it_is_that_of_this_machine() -> None:
    moment = datetime(2025, 3, 2, 12, tzinfo=timezone(timedelta(hours=9)))
    assert in_zone(moment, None) == moment
    assert in_zone(moment, None).utcoffset() == moment.astimezone().utcoffset()


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({"LANG": "en_GB.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "en_US.UTF-8", "LC_TIME": "de_DE"}, True),
        ({"LANG": "de_DE", "LC_ALL": "C.UTF-8"}, None),
        ({"LANG": "", "LC_ALL": ""}, None),
        ({"LANG": "en_CA.UTF-8"}, None),
        ({}, None),
    ],
)
def test_the_locale_tells_which_comes_first(environment: Mapping[str, str], expected: bool | None) -> None:
    assert writes_day_first(environment) is expected
