"""Export and import: a round trip is the same bytes, and a bad file is refused whole, by its line."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localmem.errors import BadInput, NotFound
from localmem.store import Store
from localmem.store.transfer import ImportSummary
from localmem.types import SetNote
from tests.store.lives import START, LifeSession, add_unit, lives, make_turns, remember, replay


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives(), st.data())
def test_a_round_trip_is_the_same_bytes(store: Store, life: list[LifeSession], data: st.DataObject) -> None:
    user = f"user{len(store.users())}"
    replay(store, user, "rsum", life)
    step = data.draw(st.sampled_from(["nothing", "undo", "clear", "fail", "erase", "other system"]))
    _change(store, user, life, step)
    lines = list(store.export(user))
    summary = store.restore(lines, "file", f"{user}copy")
    assert summary.new
    again = list(store.export(f"{user}copy"))
    assert again[1:] == lines[1:]
    assert json.loads(again[0]) == {**json.loads(lines[0]), "user": f"{user}copy"}
    assert store.bank(f"{user}copy", "rsum") == store.bank(user, "rsum")
    assert store.pending_sessions(f"{user}copy", "rsum") == store.pending_sessions(user, "rsum")
    assert store.open_sessions(f"{user}copy") == store.open_sessions(user)


def _change(store: Store, user: str, life: list[LifeSession], step: str) -> None:
    if step == "undo":
        store.undo(user, "rsum", life[0].id)
    elif step == "clear":
        store.clear(user, "rsum")
    elif step == "fail" and life[0].closed:
        store.journal(user, "other").fail(life[0].id, "it broke\nbadly")
    elif step == "erase" and len(life) > 1:
        store.delete_session(user, life[0].id)
    elif step == "other system":
        store.journal(user, "other").commit("by hand", [add_unit("h1"), SetNote("n", "x", START)])


def test_into_another_store(store: Store, tmp_path: Path) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    job = store.journal("ann", "rsum")
    job.add_turns("s2", make_turns("s2", "one", "two"))
    job.close("s2")
    lines = list(store.export("ann"))
    store.claim(store.pending_jobs()[0])
    assert list(store.export("ann")) == lines  # who works on a job belongs to this store
    with Store.open(tmp_path / "other") as other:
        assert other.restore(lines, "file").new
        assert list(other.export("ann")) == lines
        assert not other.restore(lines, "file").new
        assert [waiting.session for waiting in other.pending_jobs()] == ["s2"]
        journal = other.journal("ann", "rsum")
        assert journal.finish("s2", [add_unit("u2")])


def test_an_erased_session_is_left_out_with_what_was_derived_from_it(store: Store, tmp_path: Path) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1")], "I have a cat.")
    remember(store, "ann", "rsum", "s2", [add_unit("u2", "s2")], "I have a dog.")
    remember(store, "ann", "rsum", "s3", [add_unit("u3", "s3", sources=["s1.0"])], "I like it.")
    lines = list(store.export("ann"))
    with Store.open(tmp_path / "other") as other:
        other.unlogged.add_erased("ann", [], ["s1"])
        assert other.restore(lines, "file") == ImportSummary("ann", 2, 2, 1, new=True, erased=1)
        store.delete_session("ann", "s1")
        assert list(other.export("ann")) == list(store.export("ann"))
        assert other.restore(lines, "file", "ben").erased == 0
        other.delete_user("ann")
        assert other.restore(lines, "file", with_erased=True).sessions == 3


def test_an_existing_user_is_left_alone(store: Store) -> None:
    for user in ("ann", "bob"):
        remember(store, user, "rsum", "s1", [add_unit("u1")], f"I am {user}, and you?")
    lines, before = list(store.export("ann")), list(store.export("bob"))
    with pytest.raises(BadInput, match="user 'bob' already has a memory; import file for another user with --user"):
        store.restore(lines, "file", "bob")
    assert list(store.export("bob")) == before


def _batch(change: str) -> str:
    head = '{"kind":"batch","system":"rsum","of":"exchange","cause":"c","session":null,"state":"active","changes":['
    return f"{head}{change}]}}"


_BAD = {
    "not json": ("{", "line 4: Invalid JSON"),
    "an unknown field": ('{"kind":"session","mood":"good"}', "line 4: session"),
    "an unknown kind": ('{"kind":"wish"}', "line 4: .*wish"),
    "a turn that occurs twice": ("@2", "line 4: turn s1.0 occurs twice"),
    "an older turn": (
        '{"kind":"turn","id":"x","role":"user","speaker":"","text":"","time":"2000-01-01T00:00:00Z"}',
        "line 4: turn 'x' is older",
    ),
    "a naive time": (
        '{"kind":"turn","id":"x","role":"user","speaker":"","text":"","time":"2027-01-01T00:00:00"}',
        "line 4: turn.time",
    ),
    "an unknown role": (
        '{"kind":"turn","id":"x","role":"king","speaker":"","text":"","time":"2027-01-01T00:00:00Z"}',
        "line 4: turn.role",
    ),
    "a session that is not there": (
        '{"kind":"job","system":"rsum","session":"s7","state":"done","attempts":0,"error":""}',
        "line 4: there is no session 's7'",
    ),
    "a job of an open session": (
        '{"kind":"job","system":"rsum","session":"s1","state":"done","attempts":0,"error":""}',
        "line 4: a job for session 's1', which is not closed",
    ),
    "a change that does not apply": (
        _batch('{"unit":"u9","by":"m","reason":"","time":"2027-01-01T00:00:00Z","type":"retire_unit"}'),
        "line 4: a change names unit 'u9'",
    ),
    "an unknown field of a change": (
        _batch('{"name":"n","text":"x","mood":"good","time":"2027-01-01T00:00:00Z","type":"set_note"}'),
        "line 4: batch.changes.0.set_note.mood",
    ),
    "a number in quotes": (
        '{"kind":"job","system":"rsum","session":"s1","state":"done","attempts":"0","error":""}',
        "line 4: not as localmem writes it",
    ),
}


@pytest.mark.parametrize("case", _BAD)
def test_a_bad_line_is_named_and_nothing_is_written(store: Store, case: str) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "one"))
    lines = list(store.export("ann"))
    line, message = _BAD[case]
    with pytest.raises(BadInput, match=f"^life.jsonl {message}"):
        store.restore([*lines, lines[int(line[1:])] if line.startswith("@") else line], "life.jsonl", "bob")
    assert store.users() == ["ann"]


def test_the_head_is_checked(store: Store) -> None:
    for head, message in (
        ("", "not the first line of a localmem export"),
        ('{"localmem":"export","format":2,"user":"ann"}', "format 2 is newer than 1"),
        ('{"sessions":[]}', r"not the first line of a localmem export .*; for conversations use `localmem remember`"),
        ('{"localmem":"export","format":1,"user":" "}', "the name of the user is empty"),
    ):
        with pytest.raises(BadInput, match=message):
            store.restore([head], "life.jsonl")


def test_a_missing_user_cannot_be_exported(store: Store) -> None:
    with pytest.raises(NotFound, match="there is no user 'ann'"):
        list(store.export("ann"))
    with pytest.raises(BadInput, match="the name of the user is empty"):
        list(store.export(""))
