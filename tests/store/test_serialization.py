"""Changes and times as the store writes them: the same back, or refused."""

import math
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import given

from localmem.errors import BadInput, StoreError
from localmem.store.serialization import ChangeSerializer, from_micros, named_units, to_micros, zone_of
from localmem.store.transfer import BatchLine, parse_line
from localmem.types import (
    AddLink,
    AddUnit,
    Change,
    DateRange,
    Hide,
    Link,
    MarkUnit,
    RefuseText,
    Restore,
    SetNote,
    TimeSpan,
)
from tests.store.lives import START, add_unit, any_change, times

SERIALIZER = ChangeSerializer()


@given(any_change)
def test_a_change_comes_back_with_its_offsets_and_the_same_bytes(change: Change) -> None:
    text = SERIALIZER.encode(change)
    again = SERIALIZER.decode(text)
    assert again == change
    assert again.time.utcoffset() == change.time.utcoffset()
    assert SERIALIZER.encode(again) == text


def test_the_times_of_a_unit_come_back_and_a_unit_without_is_written_as_ever() -> None:
    spans = tuple(
        TimeSpan("till June", at, (DateRange(date(2026, 6, 1), date(2026, 6, 30)),), "month", "until") for at in (3, 40)
    )
    change = add_unit("u")
    plain = SERIALIZER.encode(change)
    assert "spans" not in plain
    for value in ((), spans):
        text = SERIALIZER.encode(replace(change, unit=replace(change.unit, spans=value)))
        again = SERIALIZER.decode(text)
        assert isinstance(again, AddUnit)
        assert again.unit.spans == value
        assert SERIALIZER.encode(again) == text
        line = BatchLine(
            system="evidence", of="session", cause="c", session="s", state="active", changes=(change, again)
        )
        parsed = parse_line(line.model_dump_json())
        assert isinstance(parsed, BatchLine)
        assert parsed.model_dump_json() == line.model_dump_json()
        units = [change.unit for change in parsed.changes if isinstance(change, AddUnit)]
        assert [unit.spans for unit in units] == [None, value]


@given(times)
def test_a_time_comes_back_on_the_same_clock(time: datetime) -> None:
    again = from_micros(to_micros(time), zone_of(time))
    assert again == time
    assert again.isoformat() == time.isoformat()


def test_what_json_cannot_hold_is_refused() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(BadInput, match=f"the number {value}"):
            SERIALIZER.encode(MarkUnit("u", "m", value, START))
        with pytest.raises(BadInput, match="finite"):
            SERIALIZER.encode(AddLink(Link("u", "v", "next", value), START))
    with pytest.raises(BadInput, match="has no UTC offset"):
        SERIALIZER.encode(SetNote("n", "x", START.replace(tzinfo=None)))
    with pytest.raises(BadInput, match="UTF-8"):
        SERIALIZER.encode(SetNote("n", "\ud83d", START))
    with pytest.raises(BadInput, match="out of range"):
        to_micros(datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-9))))


def test_a_body_of_no_version_is_named() -> None:
    with pytest.raises(StoreError, match="a stored change cannot be read"):
        SERIALIZER.decode('{"type":"forget_everything"}')


def test_the_units_a_change_names() -> None:
    assert named_units(add_unit("u")) == ("u", None)
    assert named_units(AddLink(Link("u", "v", "next"), START)) == ("u", "v")
    assert named_units(SetNote("n", "x", START)) == (None, None)
    assert named_units(Hide("s1.0", "s1.4", START)) == ("s1.0", "s1.4")
    assert named_units(Restore("s1.0", START)) == ("s1.0", None)
    assert named_units(RefuseText("x", "loop", "rsum/update", ("t",), START)) == (None, None)
