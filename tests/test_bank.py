"""The bank as a value: changes make a new one, nothing is edited in place, and a replay gives the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.bank import Bank
from localmem.errors import BadInput
from localmem.types import AddLink, AddUnit, Change, Hide, Link, MarkUnit, Restore, RetireUnit, SetNote
from tests.fakes import START, session, unit


def test_changes_make_a_new_bank_and_leave_the_old_one() -> None:
    old = Bank().apply([AddUnit(unit("a"), START)])
    new = old.apply(
        [
            AddUnit(unit("b"), START),
            RetireUnit("a", "b", "superseded", START),
            AddLink(Link("a", "b", "Changed", 0.9), START),
            SetNote("summary", "two things", START),
            MarkUnit("b", "strength", 2.0, START),
        ]
    )
    assert [u.id for u in old.live()] == ["a"]
    assert (old.links, old.notes, old.marks) == ((), {}, {})
    assert [u.id for u in new.live()] == ["b"]
    assert set(new.units) == {"a", "b"}
    assert new.retired["a"].by == "b"
    assert new.links == (Link("a", "b", "Changed", 0.9),)
    assert new.notes == {"summary": "two things"}
    assert new.marks == {("b", "strength"): 2.0}


def test_the_same_change_twice_changes_nothing_more() -> None:
    changes: list[Change] = [
        AddUnit(unit("a"), START),
        AddUnit(unit("b"), START),
        AddLink(Link("a", "b", "Cause"), START),
        RetireUnit("a", "b", "first", START),
    ]
    once = Bank().apply(changes)
    assert once.apply(changes) == once
    assert once.apply([RetireUnit("a", "c", "second", START)]).retired["a"].reason == "first"


@pytest.mark.parametrize(
    "change",
    [
        RetireUnit("nobody", "x", "y", START),
        AddLink(Link("a", "nobody", "Cause"), START),
        AddLink(Link("nobody", "a", "Cause"), START),
        AddUnit(unit("a", "another text"), START),
    ],
)
def test_a_change_that_fits_no_bank_is_refused(change: Change) -> None:
    with pytest.raises(BadInput):
        Bank().apply([AddUnit(unit("a"), START), change])


def test_what_is_hidden_is_not_live_whenever_it_was_added() -> None:
    hidden = Bank().apply([Hide("s1.0", "s1.4", START)])
    before = hidden.apply([AddUnit(unit("a"), START)])
    after = Bank().apply([AddUnit(unit("a"), START), Hide("s1.0", "s1.4", START)])
    assert not before.is_live("a")
    assert list(before.live()) == list(after.live()) == []
    assert before.apply([Restore("s1.0", START)]).is_live("a")
    assert not after.apply([RetireUnit("a", "x", "r", START), Restore("s1.0", START)]).is_live("a")


def test_a_hidden_turn_is_not_visible_nor_are_the_replies_to_it() -> None:
    dialogue = session("one", "a reply", "two", "a reply")
    assert [turn.id for turn in Bank().apply([Hide("s1.0", "x", START)]).visible(dialogue).turns] == ["s1.2", "s1.3"]
    assert [turn.id for turn in Bank().apply([Hide("s1.1", "x", START)]).visible(dialogue).turns] == [
        "s1.0",
        "s1.2",
        "s1.3",
    ]


def test_a_retirement_is_taken_back() -> None:
    bank = Bank().apply([AddUnit(unit("a"), START), RetireUnit("a", "x", "r", START)])
    assert bank.apply([Restore("a", START)]).is_live("a")


_ids = st.sampled_from("abcd")
_moves = st.one_of(
    st.builds(lambda i: AddUnit(unit(i), START), _ids),
    st.builds(lambda i: RetireUnit(i, "x", "r", START), _ids),
    st.builds(lambda i, v: MarkUnit(i, "m", v, START), _ids, st.floats(0, 9)),
    st.builds(lambda t: SetNote("n", t, START), st.text(max_size=3)),
    st.builds(lambda i: Hide(i, "x", START), _ids),
    st.builds(lambda i: Restore(i, START), _ids),
)


@given(st.lists(_moves, max_size=20), st.data())
def test_a_replay_at_once_equals_the_same_in_steps(moves: list[Change], data: st.DataObject) -> None:
    ids: set[str] = set()
    valid = []
    for move in moves:
        if isinstance(move, AddUnit):
            ids.add(move.unit.id)
        elif not isinstance(move, SetNote | Hide | Restore) and getattr(move, "unit", None) not in ids:
            continue
        valid.append(move)
    cut = data.draw(st.integers(0, len(valid)))
    assert Bank().apply(valid[:cut]).apply(valid[cut:]) == Bank().apply(valid)
