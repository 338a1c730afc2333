"""What users say and what systems make of it, for the tests of the store: by hand, and drawn by hypothesis."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import strategies as st

from localmem.store import Store
from localmem.types import AddLink, AddUnit, Change, Link, MarkUnit, RefuseText, RetireUnit, SetNote, Turn, Unit

START = datetime(2026, 3, 2, 18, 0, tzinfo=UTC)
ZONES = (UTC, timezone(timedelta(hours=9)), timezone(-timedelta(hours=3, minutes=30)))


def make_turns(session: str, *texts: str, start: datetime = START) -> list[Turn]:
    """Turns of a session, a minute apart."""
    return [
        Turn(f"{session}.{n}", "assistant" if n % 2 else "user", "Ann", text, start + timedelta(minutes=n))
        for n, text in enumerate(texts)
    ]


def new_unit(name: str, session: str = "s1", text: str = "", sources: Sequence[str] = ()) -> Unit:
    text = text or f"what {name} says"
    return Unit(
        name, text, f"key: {text}", "sentence", "Ann", session, tuple(sources) or (f"{session}.0",), START, START
    )


def add_unit(
    name: str, session: str = "s1", text: str = "", sources: Sequence[str] = (), time: datetime = START
) -> AddUnit:
    return AddUnit(new_unit(name, session, text, sources), time)


def remember(store: Store, user: str, system: str, session: str, changes: Sequence[Change], *texts: str) -> None:
    """A session from its first word to being remembered; sessions of one user are held one after the other."""
    journal = store.journal(user, system)
    start = START + timedelta(days=len(store.sessions(user)))
    journal.add_turns(session, make_turns(session, *(texts or ("Hello there, friend", "Hello to you")), start=start))
    journal.close(session)
    assert journal.finish(session, changes)


# For a test that looks into the files of SQLite.
on_sqlite = pytest.mark.parametrize("place", ["sqlite"], indirect=True)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
names = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=6)
times = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.sampled_from(ZONES))  # noqa: DTZ001
numbers = st.floats(allow_nan=False, allow_infinity=False)
units = st.builds(
    Unit, names, texts, texts, names, texts, names, st.lists(names, max_size=3).map(tuple), time=times, learned=times
)
any_change: st.SearchStrategy[Change] = st.one_of(
    st.builds(AddUnit, units, times),
    st.builds(RetireUnit, names, names, texts, times),
    st.builds(AddLink, st.builds(Link, names, names, texts, st.none() | numbers), times),
    st.builds(SetNote, names, texts, times),
    st.builds(MarkUnit, names, names, numbers, times),
    st.builds(
        RefuseText,
        texts,
        st.sampled_from(["loop", "name"]),
        names,
        st.lists(names, max_size=2).map(tuple),
        times,
        texts,
    ),
)


@dataclass(frozen=True)
class LifeSession:
    """A session of a drawn life: its turns and what the system made of it."""

    id: str
    turns: tuple[Turn, ...]
    exchange: tuple[Change, ...]
    changes: tuple[Change, ...]
    closed: bool


@st.composite
def lives(draw: st.DrawFn, most: int = 6) -> list[LifeSession]:
    """Sessions whose changes a bank can apply in order: they name units of theirs or of sessions before them."""
    unit_names: list[str] = []
    life = []
    for number in range(draw(st.integers(1, most))):
        start = START + timedelta(days=number)
        lines = draw(st.lists(texts, min_size=1, max_size=4))
        exchange = tuple(draw(_changes(f"s{number}e", f"s{number}", unit_names, start)))
        closed = draw(st.booleans())
        changes = tuple(draw(_changes(f"s{number}c", f"s{number}", unit_names, start))) if closed else ()
        life.append(
            LifeSession(f"s{number}", tuple(make_turns(f"s{number}", *lines, start=start)), exchange, changes, closed)
        )
    return life


@st.composite
def _changes(draw: st.DrawFn, prefix: str, session: str, unit_names: list[str], time: datetime) -> list[Change]:
    """`known` grows by the units that are added."""
    changes: list[Change] = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(
            st.sampled_from(["add", "note", "refuse", "retire", "link", "mark"] if unit_names else ["add", "note"])
        )
        changes.append(draw(_change(kind, f"{prefix}{number}", session, unit_names, time)))
    return changes


@st.composite
def _change(draw: st.DrawFn, kind: str, name: str, session: str, unit_names: list[str], time: datetime) -> Change:
    if kind == "add":
        unit_names.append(name)
        return AddUnit(new_unit(name, session, draw(texts)), time)
    if kind == "note":
        return SetNote(draw(st.sampled_from(["summary", "portrait"])), draw(texts), time)
    if kind == "refuse":
        return RefuseText(draw(texts), "loop", "rsum/update", (f"{session}.0",), time)
    unit = draw(st.sampled_from(unit_names))
    if kind == "retire":
        return RetireUnit(unit, draw(st.sampled_from([*unit_names, "merge"])), draw(texts), time)
    if kind == "link":
        return AddLink(Link(unit, draw(st.sampled_from(unit_names)), draw(texts), draw(st.none() | numbers)), time)
    return MarkUnit(unit, "recalled", draw(numbers), time)


def replay(store: Store, user: str, system: str, life: Sequence[LifeSession]) -> None:
    """Lead the life: sessions that are not closed have no changes of their own yet."""
    journal = store.journal(user, system)
    for entry in life:
        journal.add_turns(entry.id, entry.turns)
        journal.commit(entry.turns[-1].id, entry.exchange)
        if entry.closed:
            journal.close(entry.id)
            journal.finish(entry.id, entry.changes)
