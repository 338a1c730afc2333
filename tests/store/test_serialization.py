"""Changes and times as the store writes them: the same back, or refused."""

import math
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given

from localmem.errors import BadInput, StoreError
from localmem.store.serialization import ChangeSerializer, from_micros, named_units, to_micros, zone_of
from localmem.types import AddLink, Change, Hide, Link, MarkUnit, RefuseText, Restore, SetNote
from tests.store.lives import START, add_unit, any_change, times

SERIALIZER = ChangeSerializer()


@given(any_change)
def test_a_change_comes_back_with_its_offsets_and_the_same_bytes(change: Change) -> None:
    text = SERIALIZER.encode(change)
    again = SERIALIZER.decode(text)
    assert again == change
    assert again.time.utcoffset() == change.time.utcoffset()
    assert SERIALIZER.encode(again) == text


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
