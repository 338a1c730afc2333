"""Banks: committed once, replayed at any date, and never written against a version that was not read."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from sqlalchemy import event

from localmem.bank import Bank
from localmem.errors import BadInput, Conflict, NotFound
from localmem.journal import Journal
from localmem.store import Store
from localmem.types import AddLink, Change, Link, MarkUnit, RetireUnit, SetNote
from tests.store.lives import START, LifeSession, add_unit, lives, make_turns, new_unit, remember, replay

DAY = timedelta(days=1)


def test_a_journal_is_what_an_agent_asks_for(store: Store) -> None:
    journal: Journal = store.journal("ann", "rsum")
    assert journal.bank() == Bank()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives())
def test_a_replay_is_what_was_applied_step_by_step(store: Store, life: list[LifeSession]) -> None:
    user = f"user{len(store.users())}"
    replay(store, user, "rsum", life)
    bank, changes = Bank(), list[Change]()
    for entry in life:
        for batch in (entry.exchange, entry.changes if entry.closed else ()):
            bank = bank.apply(batch)
            changes += batch
    assert store.changes(user, "rsum") == changes
    assert store.bank(user, "rsum") == bank == store.journal(user, "rsum").bank()
    for entry in life:
        assert store.bank(user, "rsum", entry.turns[0].time) == Bank().apply(
            change for change in changes if change.time <= entry.turns[0].time
        )


def test_the_same_cause_again_changes_nothing(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "one", "two"))
    journal.commit("s1.1", [add_unit("u1")])
    version = store.version("ann", "rsum")
    journal.commit("s1.1", [add_unit("u2")])
    store.journal("ann", "rsum").commit("s1.1", [add_unit("u3")])
    assert list(store.bank("ann", "rsum").units) == ["u1"]
    assert store.version("ann", "rsum") == version == 1


def test_a_commit_takes_few_statements(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "one", "two", "three"))
    journal.commit("s1.1", [add_unit("u1")])
    statements: list[str] = []
    engine = store._database._engine

    def record(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement.split(maxsplit=1)[0])

    event.listen(engine, "before_cursor_execute", record)
    journal.commit("s1.2", [add_unit("u2"), AddLink(Link("u2", "u1", "after"), START)])
    event.remove(engine, "before_cursor_execute", record)
    other = {"PRAGMA", "BEGIN"} if store._database.files else set()
    written = [verb for verb in statements if verb not in other]
    assert sorted(written) == sorted(["INSERT", "SELECT", "INSERT", "UPDATE"] + ["SELECT"] * (not other))  # to notify
    assert [batch.session for batch in store._read("ann", lambda c: store._log.batches(c, "ann", "rsum"))] == ["s1"] * 2


def test_a_session_is_finished_once(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "one", "two"))
    with pytest.raises(BadInput, match="session 's1' of user 'ann' is open; close it first"):
        journal.finish("s1", [add_unit("u1")])
    with pytest.raises(NotFound):
        journal.finish("s2", [])
    journal.close("s1")
    journal.close("s1")
    assert journal.finish("s1", [add_unit("u1")]) is True
    assert journal.finish("s1", [add_unit("u2")]) is False
    assert store.journal("ann", "rsum").finish("s1", [add_unit("u3")]) is False
    assert list(store.bank("ann", "rsum").units) == ["u1"]


def test_a_bank_changed_elsewhere_is_a_conflict_until_it_is_read_again(store: Store) -> None:
    ours, theirs = store.journal("ann", "rsum"), store.journal("ann", "rsum")
    theirs.add_turns("s1", make_turns("s1", "one", "two"))
    theirs.close("s1")
    theirs.commit("hand", [add_unit("u1")])
    with pytest.raises(Conflict, match="the bank of rsum for user 'ann' was changed by another process"):
        ours.finish("s1", [add_unit("u2")])
    assert store.backlog("ann", "rsum").sessions == 1
    assert list(ours.bank().units) == ["u1"]
    assert ours.finish("s1", [add_unit("u2")])
    with pytest.raises(Conflict):
        theirs.commit("later", [add_unit("u3")])
    other_system = store.journal("ann", "memory_retrieval")
    other_system.commit("hand", [add_unit("u1")])


def test_a_change_that_does_not_apply_never_enters_the_log(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.commit("first", [add_unit("u1")])
    bad: list[Change] = [
        RetireUnit("u9", "merge", "", START),
        AddLink(Link("u1", "u9", "next"), START),
        add_unit("u1", text="something else"),
    ]
    for number, change in enumerate(bad):
        with pytest.raises(BadInput, match=r"u1|u9"):
            journal.commit(f"bad{number}", [add_unit("u2"), change])
    assert list(store.bank("ann", "rsum").units) == ["u1"]
    assert store.version("ann", "rsum") == 1
    journal.commit("good", [add_unit("u1"), RetireUnit("u1", "merge", "", START)])
    assert store.bank("ann", "rsum").retired.keys() == {"u1"}


def test_nothing_to_change_is_nothing_to_write(store: Store) -> None:
    journal = store.journal("ann", "none")
    journal.commit("x", [])
    remember(store, "ann", "none", "s1", [])
    assert store.version("ann", "none") == 0
    assert store.changes("ann", "none") == []


def test_the_bank_as_it_stood(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1"), SetNote("summary", "first", START)])
    remember(
        store, "ann", "rsum", "s2", [RetireUnit("u1", "u2", "", START + DAY), SetNote("summary", "second", START + DAY)]
    )
    before = store.bank("ann", "rsum", START)
    assert before.is_live("u1")
    assert before.notes == {"summary": "first"}
    assert store.bank("ann", "rsum", START - DAY) == Bank()
    assert store.bank("ann", "rsum", START + DAY) == store.bank("ann", "rsum")


def test_a_session_read_late_does_not_break_the_view_of_its_time(store: Store) -> None:
    """Old conversations may be read after newer ones: their changes may name units learned later."""
    late = [add_unit("u1", time=START + DAY)]
    remember(store, "ann", "rsum", "s1", late)
    early: list[Change] = [
        add_unit("u0", time=START),
        AddLink(Link("u0", "u1", "next"), START),
        MarkUnit("u1", "recalled", 1, START),
        RetireUnit("u1", "u0", "", START),
    ]
    remember(store, "ann", "rsum", "s2", early)
    assert store.bank("ann", "rsum", START).units == {"u0": new_unit("u0")}
    assert not store.bank("ann", "rsum").is_live("u1")


def test_systems_that_keep_something(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    remember(store, "ann", "none", "s2", [])
    assert store.systems("ann") == ["none", "rsum"]
    assert store.systems("bob") == []
