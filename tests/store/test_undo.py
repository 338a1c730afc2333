"""Taking back a session, clearing a bank for a rebuild, and what history tells of it afterwards."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localmem.bank import Bank
from localmem.errors import NotFound
from localmem.store import Store
from localmem.types import AddLink, AddUnit, Change, Hide, Link, MarkUnit, RetireUnit, SetNote
from tests.store.lives import START, LifeSession, add_unit, lives, make_turns, new_unit, remember, replay


def _read_again(store: Store, user: str, sessions: list[str], changes: list[Change]) -> None:
    journal = store.journal(user, "rsum")
    for session in sessions:
        assert journal.finish(session, changes)


def test_one_session_is_taken_back_and_not_read_again(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    remember(store, "ann", "rsum", "s2", [add_unit("u2"), RetireUnit("u1", "u2", "moved", START)])
    assert store.undo("ann", "rsum", "s2") == []
    bank = store.bank("ann", "rsum")
    assert list(bank.units) == ["u1"]
    assert bank.is_live("u1")
    assert store.pending_jobs() == []
    assert store.pending_sessions("ann", "rsum") == []
    assert len(store.session("ann", "s2").turns) == 2


@pytest.mark.parametrize(
    "leaning",
    [
        [RetireUnit("u1", "merge", "", START)],
        [add_unit("u2"), AddLink(Link("u2", "u1", "because"), START)],
        [add_unit("u2"), AddLink(Link("u1", "u2", "because"), START)],
        [MarkUnit("u1", "recalled", 1, START)],
        [SetNote("summary", "more", START)],
    ],
)
def test_what_stands_on_it_is_taken_back_and_read_again(store: Store, leaning: list[Change]) -> None:
    remember(store, "ann", "rsum", "s0", [add_unit("u0"), SetNote("portrait", "Ann", START)])
    remember(store, "ann", "rsum", "s1", [add_unit("u1"), SetNote("summary", "some", START)])
    remember(store, "ann", "rsum", "s2", [MarkUnit("u0", "recalled", 1, START)])
    remember(store, "ann", "rsum", "s3", leaning)
    assert store.undo("ann", "rsum", "s1") == ["s3"]
    assert [job.session for job in store.pending_jobs()] == ["s3"]
    bank = store.bank("ann", "rsum")
    assert list(bank.units) == ["u0"]
    assert bank.notes == {"portrait": "Ann"}
    assert bank.marks == {("u0", "recalled"): 1}
    _read_again(store, "ann", ["s3"], [add_unit("u3")])
    assert list(store.bank("ann", "rsum").units) == ["u0", "u3"]


def test_what_is_hidden_stays_so_through_a_rebuild(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    journal = store.journal("ann", "rsum")
    journal.commit("forget:s9.0", [Hide("s9.0", "s9.0", START), Hide("u1", "s9.0", START)])
    assert not store.history("ann", "rsum", "u1").live
    store.clear("ann", "rsum")
    _read_again(store, "ann", ["s1"], [add_unit("u1")])
    assert not store.bank("ann", "rsum").is_live("u1")
    assert store.undo_batch("ann", "rsum", "forget:s9.0") == []
    assert store.history("ann", "rsum", "u1").live
    assert list(store.bank("ann", "rsum").hidden) == ["s9.0"]


def test_it_goes_on_through_what_stands_on_that(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    remember(store, "ann", "rsum", "s2", [add_unit("u2"), AddLink(Link("u1", "u2", "next"), START)])
    remember(store, "ann", "rsum", "s3", [MarkUnit("u2", "recalled", 1, START)])
    remember(store, "ann", "rsum", "s4", [add_unit("u4")])
    assert store.undo("ann", "rsum", "s1") == ["s2", "s3"]
    assert list(store.bank("ann", "rsum").units) == ["u4"]


def test_the_batches_of_a_session_go_together(store: Store) -> None:
    """An exchange of s2 stands on s1: the changes of s2's end go with it, since s2 is read again as a whole."""
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    journal = store.journal("ann", "rsum")
    journal.add_turns("s2", make_turns("s2", "word", "word"))
    journal.commit("s2.1", [MarkUnit("u1", "recalled", 1, START)])
    journal.close("s2")
    journal.finish("s2", [add_unit("u2")])
    assert store.undo("ann", "rsum", "s1") == ["s2"]
    assert store.bank("ann", "rsum") == Bank()
    journal.bank()
    assert journal.finish("s2", [add_unit("u2")])


def test_what_was_there_before_is_not_lost(store: Store) -> None:
    """s2 adds the unit of s1 once more: what stands on the unit stands on s1."""
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    remember(store, "ann", "rsum", "s2", [add_unit("u1"), add_unit("u2")])
    remember(store, "ann", "rsum", "s3", [MarkUnit("u1", "recalled", 1, START)])
    assert store.undo("ann", "rsum", "s2") == []
    assert list(store.bank("ann", "rsum").units) == ["u1"]
    assert store.undo("ann", "rsum", "s1") == ["s3"]


def test_an_unknown_session_and_one_without_changes(store: Store) -> None:
    with pytest.raises(NotFound, match="'s9'"):
        store.undo("ann", "rsum", "s9")
    remember(store, "ann", "rsum", "s1", [])
    assert store.undo("ann", "rsum", "s1") == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives(), st.data())
def test_any_session_can_be_taken_back_and_the_others_still_apply(
    store: Store, life: list[LifeSession], data: st.DataObject
) -> None:
    user = f"user{len(store.users())}"
    replay(store, user, "rsum", life)
    entry = data.draw(st.sampled_from(life))
    requeued = store.undo(user, "rsum", entry.id)
    undone = {entry.id, *requeued}
    bank = store.bank(user, "rsum")
    own = [change for entry in life if entry.id not in undone for change in (*entry.exchange, *entry.changes)]
    assert bank == Bank().apply(own)
    assert {session.id for session in store.pending_sessions(user, "rsum")} == {
        entry.id for entry in life if entry.closed and entry.id in requeued
    }


def test_a_rebuild_starts_from_the_raw_log(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    remember(store, "ann", "rsum", "s2", [add_unit("u2"), MarkUnit("u1", "recalled", 1, START)])
    remember(store, "ann", "none", "s3", [add_unit("u3")])
    journal = store.journal("ann", "rsum")
    journal.commit("by hand", [add_unit("h1", session="")])
    journal.commit("by hand too", [RetireUnit("u2", "ann", "wrong", START)])
    version = store.version("ann", "rsum")
    assert store.clear("ann", "rsum") == ["s1", "s2", "s3"]
    assert list(store.bank("ann", "rsum").units) == ["h1"]
    assert store.version("ann", "rsum") > version
    assert [session.id for session in store.pending_sessions("ann", "rsum")] == ["s1", "s2", "s3"]
    assert [job.session for job in store.pending_jobs(system="rsum")] == ["s1", "s2", "s3"]
    assert list(store.bank("ann", "none").units) == ["u3"]
    _read_again(store, "ann", ["s1", "s2", "s3"], [add_unit("u1")])
    assert list(store.bank("ann", "rsum").units) == ["h1", "u1"]


def test_a_session_that_goes_on_keeps_its_changes_through_a_rebuild(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "word", "word"))
    journal.commit("s1.1", [add_unit("u1")])
    assert store.clear("ann", "rsum") == []
    assert list(store.bank("ann", "rsum").units) == ["u1"]


def test_history_tells_how_a_unit_came_to_be(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1", sources=("s1.0", "lost"))], "I live in Lyon", "Nice")
    remember(store, "ann", "rsum", "s2", [add_unit("u2"), AddLink(Link("u1", "u2", "next"), START)])
    remember(
        store, "ann", "rsum", "s3", [add_unit("u3"), RetireUnit("u1", "u3", "she moved", START + timedelta(days=2))]
    )
    life = store.history("ann", "rsum", "u1")
    assert life.unit == new_unit("u1", sources=("s1.0", "lost"))
    assert not life.live
    assert [turn.text for turn in life.sources] == ["I live in Lyon"]
    assert [(event.change.type, event.session, event.cause, event.state) for event in life.events] == [
        ("add_unit", "s1", "s1", "active"),
        ("add_link", "s2", "s2", "active"),
        ("retire_unit", "s3", "s3", "active"),
    ]
    assert [event.change.type for event in store.history("ann", "rsum", "u3").events] == ["add_unit", "retire_unit"]


def test_history_remembers_what_was_taken_back(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    store.undo("ann", "rsum", "s1")
    life = store.history("ann", "rsum", "u1")
    assert not life.live
    assert [event.state for event in life.events] == ["undone"]
    remember(store, "ann", "rsum", "s2", [AddUnit(new_unit("u1", text="better"), START)])
    life = store.history("ann", "rsum", "u1")
    assert life.live
    assert life.unit.text == "better"
    assert store.clear("ann", "rsum") == ["s1", "s2"]
    assert [event.state for event in store.history("ann", "rsum", "u1").events] == ["undone", "superseded"]
    with pytest.raises(NotFound, match="no unit 'u9' in rsum"):
        store.history("ann", "rsum", "u9")


def test_a_chain_of_any_length_is_followed(store: Store) -> None:
    remember(store, "ann", "rsum", "s0", [add_unit("u0")])
    for number in range(1, 60):
        links = [AddLink(Link(f"u{number - 1}", f"u{number}", "next"), START)]
        remember(store, "ann", "rsum", f"s{number}", [add_unit(f"u{number}"), *links])
    remember(store, "ann", "rsum", "alone", [add_unit("v0")])
    assert store.undo("ann", "rsum", "s10") == [f"s{number}" for number in range(11, 60)]
    assert len(store.bank("ann", "rsum").units) == 11
