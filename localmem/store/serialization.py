"""Converts values to columns and back: times to microseconds, changes to JSON. Does not depend on the tables.

A change keeps the UTC offset of its times, so that a date stays the same date. A value that cannot be restored exactly
(a naive time, a number that is not finite, an unpaired surrogate) is refused here, before anything is written.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, TypeAdapter, ValidationError, WrapSerializer

from localmem.errors import BadInput, StoreError
from localmem.types import AddLink, AddUnit, Change, Hide, MarkUnit, RefuseText, Restore, RetireUnit, SetNote

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)


def zone_of(time: datetime) -> int:
    """Seconds east of UTC. Raises BadInput for no time, a naive one and an offset that is not in whole minutes."""
    if not isinstance(time, datetime):
        raise BadInput(f"the time is {time!r}; give a datetime with a UTC offset, such as datetime.now(UTC)")
    offset = time.utcoffset()
    if offset is None:
        raise BadInput(f"the time {time.isoformat()} has no UTC offset; add one, such as {time.isoformat()}+00:00")
    if offset % timedelta(minutes=1):
        raise BadInput(f"the time {time.isoformat()} has an offset with seconds; give the time in UTC")
    return offset // timedelta(seconds=1)


def to_micros(time: datetime) -> int:
    """Microseconds since 1970 in UTC. Raises BadInput for a naive time."""
    zone_of(time)
    try:
        return (time.astimezone(UTC) - _EPOCH) // _TICK
    except OverflowError as error:
        raise BadInput(f"the time {time.isoformat()} is out of range; give a year from 1 to 9999") from error


def from_micros(micros: int, zone: int = 0) -> datetime:
    """The time in a zone `zone` seconds east of UTC."""
    time = _EPOCH + micros * _TICK
    return time.astimezone(timezone(timedelta(seconds=zone))) if zone else time


def check_text(*texts: object) -> None:
    """Raises BadInput for what no store could return: no text, an unpaired surrogate, NUL, which PostgreSQL refuses."""
    for text in texts:
        if not isinstance(text, str):
            raise BadInput(f"{text!r} is no text; give a string")
        if "\0" in text:
            raise BadInput("a text contains the character NUL; leave it out")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            broken = text[error.start : error.end]
            raise BadInput(f"a text contains {broken!r}, an unpaired surrogate; send valid UTF-8") from error


def named_units(change: Change) -> tuple[str | None, str | None]:
    """The units that a change names: its subject, and the other end of a link or the successor of a retirement.

    What is hidden or restored may be a turn; the other end is then the turn that asked for it.
    """
    match change:
        case AddUnit(unit=unit):
            return unit.id, None
        case RetireUnit(unit=unit_id, by=by):
            return unit_id, by
        case AddLink(link=link):
            return link.source, link.target
        case MarkUnit(unit=unit_id):
            return unit_id, None
        case Hide(item=item, by=by):
            return item, by
        case Restore(item=item):
            return item, None
        case SetNote() | RefuseText():
            return None, None


def _without_absent_fields(change: AddUnit, write: SerializerFunctionWrapHandler) -> object:
    """A unit without spans or origin is written as before units had any: logs and exports of then stay as they are."""
    document: dict[str, Any] = write(change)
    for name in ("spans", "origin"):
        if getattr(change.unit, name) is None:
            del document["unit"][name]
    return document


_Addition = Annotated[AddUnit, WrapSerializer(_without_absent_fields)]
_Other = RetireUnit | AddLink | SetNote | MarkUnit | RefuseText | Hide | Restore
StoredChange = Annotated[_Addition | _Other, Field(discriminator="type")]
"""A change as a field of what is stored or exported."""


class ChangeSerializer:
    """Changes to JSON texts and back. The texts are canonical: the same change gives the same bytes."""

    def __init__(self) -> None:
        self._adapter: TypeAdapter[Change] = TypeAdapter(StoredChange)

    def encode(self, change: Change) -> str:
        """Raises BadInput for a change that could not be restored exactly."""
        for time in _times(change):
            to_micros(time)
        for number in _numbers(change):
            if not math.isfinite(number):
                raise BadInput(f"a change contains the number {number}; give a finite one")
        try:
            return self._adapter.dump_json(change).decode()
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            raise BadInput(f"a change cannot be written ({reason}); send valid UTF-8") from error

    def decode(self, body: str) -> Change:
        """Raises StoreError for a body that no version of localmem wrote."""
        try:
            return self._adapter.validate_json(body)
        except ValidationError as error:
            raise StoreError(f"a stored change cannot be read ({body[:80]!r}); import an earlier export") from error


def _times(change: Change) -> Iterator[datetime]:
    yield change.time
    if isinstance(change, AddUnit):
        yield change.unit.time
        yield change.unit.learned


def _numbers(change: Change) -> Iterator[float]:
    if isinstance(change, MarkUnit):
        yield change.value
    elif isinstance(change, AddLink) and change.link.probability is not None:
        yield change.link.probability
