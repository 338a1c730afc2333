"""The raw log: what is appended comes back as it was said, and what cannot be kept is refused whole."""

from contextlib import AbstractContextManager
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from localmem.errors import BadInput, NotFound, OutOfOrder
from localmem.store import Store
from localmem.types import Session, SetNote, Turn
from tests.store.lives import START, make_turns, remember, texts


def test_turns_come_back_as_they_were_said(store: Store) -> None:
    zone = timezone(timedelta(hours=-3, minutes=-30))
    turns = [
        Turn("a", "user", "Ann", 'A "quoted"\nline — 안녕', START.astimezone(zone)),
        *make_turns("s1", "x", "y", start=START),
    ]
    store.journal("ann", "rsum").add_turns("s1", turns)
    assert store.session("ann", "s1") == Session("s1", tuple(turns))
    assert store.session("ann", "s1").turns[0].time.isoformat() == turns[0].time.isoformat()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5), st.data())
def test_any_text_survives(store: Store, lines: list[tuple[str, str]], data: st.DataObject) -> None:
    session = f"s{len(store.sessions('ann'))}"
    turns = tuple(
        Turn(f"{session}.{n}", "user", speaker, text, START + timedelta(microseconds=n))
        for n, (speaker, text) in enumerate(lines)
    )
    journal = store.journal("ann", "rsum")
    cut = data.draw(st.integers(0, len(turns)))
    journal.add_turns(session, turns[:cut])
    journal.add_turns(session, turns)
    assert store.session("ann", session).turns == turns


def test_a_turn_that_is_there_changes_nothing(store: Store) -> None:
    journal, turns = store.journal("ann", "rsum"), make_turns("s1", "one", "two", "three")
    journal.add_turns("s1", turns[:2])
    journal.add_turns("s1", turns)
    journal.add_turns("s1", turns[:1])
    journal.add_turns("s1", [])
    assert store.session("ann", "s1").turns == tuple(turns)


def test_what_comes_about_again_from_turns_does_not_wait_for_the_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, waits, write = store.journal("ann", "rsum"), list[bool](), store._database.write

    def record(*, durable: bool = True) -> AbstractContextManager[Connection]:
        waits.append(durable)
        return write(durable=durable)

    monkeypatch.setattr(store._database, "write", record)
    journal.add_turns("s1", make_turns("s1", "one"))
    journal.commit("s1.0", [SetNote("summary", "One.", START)], derived=True)
    journal.commit("by hand", [SetNote("summary", "Two.", START)])
    assert waits == [True, False, True]
    assert journal.bank().notes["summary"] == "Two."


def test_a_taken_id_is_refused_and_nothing_of_the_call_is_written(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "one"))
    other = Turn("s1.0", "user", "Ann", "something else", START)
    for session, turns in (("s1", [*make_turns("s1", "one", "two")[1:], other]), ("s2", make_turns("s1", "one"))):
        with pytest.raises(BadInput, match=r"'s1\.0' belongs to another turn"):
            journal.add_turns(session, turns)
    with pytest.raises(BadInput, match=r"'s3\.0' belongs to another turn"):
        journal.add_turns("s3", make_turns("s3", "one") + make_turns("s3", "one"))
    assert [info.turns for info in store.sessions("ann")] == [1]


def test_an_older_turn_is_out_of_order(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "one", "two"))
    with pytest.raises(OutOfOrder, match="'late' of 2026-03-02T17:59:00"):
        journal.add_turns("s1", [Turn("late", "user", "Ann", "late", START - timedelta(minutes=1))])
    with pytest.raises(OutOfOrder, match="give turns in chronological order"):
        journal.add_turns("s2", make_turns("s2", "one", "two")[::-1])
    journal.add_turns("s1", [Turn("same", "user", "Ann", "at the same time", START + timedelta(minutes=1))])
    assert [len(session.turns) for session in store.open_sessions("ann")] == [3]


def test_a_closed_session_takes_no_more(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [])
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", store.session("ann", "s1").turns)
    with pytest.raises(BadInput, match="session 's1' is closed; start a new session"):
        journal.add_turns("s1", make_turns("s1", "a", "b", "c", start=START + timedelta(days=1))[2:])


def test_what_would_not_come_back_is_refused(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    naive = datetime(2026, 3, 2)  # noqa: DTZ001
    broken = START.astimezone(timezone(timedelta(seconds=61)))
    for time, message in ((naive, "has no UTC offset"), (broken, "offset with seconds")):
        with pytest.raises(BadInput, match=message):
            journal.add_turns("s1", [Turn("t", "user", "Ann", "x", time)])
    with pytest.raises(BadInput, match="an unpaired surrogate"):
        journal.add_turns("s1", [Turn("t", "user", "Ann", "x\ud83d", START)])
    assert store.users() == []


def test_sessions_are_told_in_the_order_they_were_held(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    for number in (2, 0, 1):
        start = START + timedelta(days=number)
        journal.add_turns(f"s{number}", make_turns(f"s{number}", "one", "two", start=start))
    journal.close("s1")
    infos = store.sessions("ann")
    assert [(info.id, info.state, info.turns) for info in infos] == [
        ("s0", "open", 2),
        ("s1", "closed", 2),
        ("s2", "open", 2),
    ]
    assert (infos[0].started, infos[0].ended) == (START, START + timedelta(minutes=1))
    assert infos[1].jobs == {"rsum": "pending"}
    assert [info.id for info in store.sessions("ann", "closed")] == ["s1"]
    assert [session.id for session in store.open_sessions("ann")] == ["s0", "s2"]


def test_a_missing_session_is_named(store: Store) -> None:
    with pytest.raises(NotFound, match="user 'ann' has no session 's9'; `localmem sessions` lists them"):
        store.session("ann", "s9")
    with pytest.raises(NotFound, match="user 'ann' has no session 's9'"):
        store.journal("ann", "rsum").close("s9")


def test_a_users_own_turns_and_texts_are_counted(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "Łódź", "A reply.", "Later."))
    store.journal("bob", "rsum").add_turns("s1", make_turns("s1", "Something else."))
    times = store.lookups.turn_times("ann", START - timedelta(days=1))
    assert times == [turn.time for turn in store.session("ann", "s1").turns if turn.role == "user"]
    assert store.lookups.turn_times("ann", times[0]) == times[1:]
    assert store.lookups.text_size("ann") == sum(len(text.encode()) for text in ("Łódź", "A reply.", "Later."))
