"""Erasure: what goes, what stays, what is read again, and the proof on the bytes of the files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localmem.errors import BadInput, Conflict, NotFound
from localmem.retrieval.base import Side
from localmem.retrieval.encoder import CachedEncoder
from localmem.store import Store
from localmem.types import AddLink, AddUnit, Hide, Link, MarkUnit, Message, RefuseText, RetireUnit, SetNote
from tests.store.lives import START, LifeSession, add_unit, lives, make_turns, new_unit, on_sqlite, remember, replay

SECRET = "The key is under the third flowerpot"
PLAIN = "The weather was fine all week long"


def _bytes(place: str) -> bytes:
    """Everything in the data directory; empty on a server, which keeps its files to itself."""
    files = Path(place).rglob("*") if "://" not in place else ()
    return b"".join(file.read_bytes() for file in files if file.is_file())


def test_a_unit_goes_with_all_that_names_it(store: Store, place: str) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text=SECRET), add_unit("u2", text=PLAIN)], PLAIN)
    remember(
        store, "ann", "rsum", "s2", [AddLink(Link("u1", "u2", "next"), START), MarkUnit("u1", "recalled", 2, START)]
    )
    remember(
        store,
        "ann",
        "rsum",
        "s3",
        [AddLink(Link("u2", "u1", "next"), START), RetireUnit("u2", "u1", f"as {SECRET}", START)],
    )
    receipt = store.delete_units("ann", "rsum", "u1")
    assert receipt.rows == {"changes": 4}
    assert receipt.sources == ("s1.0",)
    assert receipt.remaining in (0, None)
    bank = store.bank("ann", "rsum")
    assert list(bank.units) == ["u2"]
    assert not bank.links
    assert not bank.marks
    assert not bank.is_live("u2")  # what it had taken the place of does not come back
    assert SECRET.encode() not in _bytes(place)
    with pytest.raises(NotFound, match="no unit 'u1' in rsum"):
        store.delete_units("ann", "rsum", "u1")


def test_a_unit_with_its_sources_goes_from_every_system(store: Store, place: str) -> None:
    remember(store, "ann", "rsum", "s1", [SetNote("summary", SECRET, START)], SECRET, "So it is.", PLAIN)
    journal = store.journal("ann", "facts")
    assert journal.finish("s1", [add_unit("f1", text=SECRET), add_unit("f2", text=PLAIN, sources=("s1.2",))])
    remember(store, "ann", "rsum", "s2", [SetNote("summary", f"{SECRET} and more", START)])
    remember(store, "ann", "facts", "s3", [add_unit("f3", session="s3", text="Unrelated to all of that")])
    receipt = store.delete_units("ann", "facts", "f1", sources=True)
    assert receipt.reread == {"rsum": ("s1", "s2")}
    assert [turn.text for turn in store.session("ann", "s1").turns] == [PLAIN]
    assert not store.bank("ann", "rsum").notes
    assert list(store.bank("ann", "facts").units) == ["f2", "f3"]
    assert SECRET.encode() not in _bytes(place)
    assert receipt.rows["turns"] == 2  # the reply goes too: it may repeat what it answers


def test_a_unit_that_says_more_than_the_turns_it_names_goes_with_its_session(store: Store) -> None:
    """A model wrote it from the whole session and named one turn."""
    memo = add_unit("m1", text=f"{PLAIN} {SECRET}", sources=("s1.2",))
    remember(store, "ann", "memochat", "s1", [memo], SECRET, "So it is.", PLAIN)
    assert store.journal("ann", "facts").finish("s1", [add_unit("f1", text=SECRET)])
    receipt = store.delete_units("ann", "facts", "f1", sources=True)
    assert receipt.reread["memochat"] == ("s1",)
    assert not store.bank("ann", "memochat").units


def test_a_passage_of_a_long_turn_says_no_more_than_the_turn(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text=SECRET)], SECRET, "So it is.", PLAIN)
    passage = add_unit("f1", text=f"Ann (part 1 of 2): {PLAIN}", sources=("s1.2",))
    assert store.journal("ann", "facts").finish("s1", [passage])
    assert store.delete_units("ann", "rsum", "u1", sources=True).reread == {}
    assert set(store.bank("ann", "facts").units) == {"f1"}


def _refusal(session: str, text: str) -> RefuseText:
    return RefuseText(text, "name", "rsum/update", (f"{session}.0",), START, "Flowerpot")


def test_refused_texts_go_with_their_session_and_where_they_may_repeat_it(store: Store, place: str) -> None:
    remember(store, "ann", "rsum", "s0", [_refusal("s0", PLAIN)])
    remember(store, "ann", "rsum", "s1", [_refusal("s1", SECRET)], "Nothing of it", "Indeed")
    remember(store, "ann", "rsum", "s2", [_refusal("s2", f"As before: {SECRET}"), add_unit("u2", "s2")])
    assert store.refusals == {("rsum/update", "name"): 3}
    receipt = store.delete_session("ann", "s1")
    assert receipt.reread == {}, "a record that is gone leaves nothing to be read again"
    bank = store.bank("ann", "rsum")
    assert [refusal.text for refusal in bank.refused] == [PLAIN]
    assert list(bank.units) == ["u2"]
    assert SECRET.encode() not in _bytes(place)


def test_refused_texts_go_with_a_unit_that_they_may_repeat(store: Store, place: str) -> None:
    remember(store, "ann", "rsum", "s1", [_refusal("s1", PLAIN)])
    remember(store, "ann", "rsum", "s2", [add_unit("u1", "s2", text=SECRET)])
    remember(store, "ann", "rsum", "s3", [_refusal("s3", SECRET)])
    store.delete_units("ann", "rsum", "u1")
    assert [refusal.text for refusal in store.bank("ann", "rsum").refused] == [PLAIN]
    assert SECRET.encode() not in _bytes(place)


def test_a_session_goes_with_what_was_drawn_from_it(store: Store, place: str) -> None:
    remember(
        store, "ann", "rsum", "s1", [add_unit("u1", text=SECRET), SetNote("summary", SECRET, START)], SECRET, PLAIN
    )
    remember(store, "ann", "rsum", "s2", [add_unit("u2", "s2"), AddLink(Link("u1", "u2", "next"), START)])
    remember(store, "ann", "rsum", "s3", [add_unit("u3", "s3", SECRET), RetireUnit("u1", "u3", "blended", START)])
    remember(store, "ann", "rsum", "s4", [SetNote("summary", f"{SECRET} and more", START)])
    remember(store, "ann", "rsum", "s5", [add_unit("u5", "s5", f"Again: {SECRET}", sources=("s5.0", "s1.0"))])
    journal = store.journal("ann", "rsum")
    receipt = store.delete_session("ann", "s1")
    assert receipt.reread == {"rsum": ("s3", "s4", "s5")}
    assert receipt.rows["sessions"] == 1
    assert receipt.rows["turns"] == 2
    bank = store.bank("ann", "rsum")
    assert list(bank.units) == ["u2"]
    assert not bank.links
    assert not bank.notes
    assert [job.session for job in store.pending_jobs()] == ["s3", "s4", "s5"]
    assert SECRET.encode() not in _bytes(place)
    with pytest.raises(NotFound):
        store.session("ann", "s1")
    with pytest.raises(NotFound, match="no session 's1'"):
        store.delete_session("ann", "s1")
    with pytest.raises(Conflict):
        journal.finish("s3", [add_unit("u3", "s3")])


def test_what_was_taken_back_before_goes_too(store: Store, place: str) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text=SECRET)])
    store.undo("ann", "rsum", "s1")
    remember(store, "ann", "rsum", "s2", [add_unit("u2", "s2", f"{SECRET}, too")])
    store.clear("ann", "rsum")
    assert store.delete_session("ann", "s1").remaining in (0, None)
    assert store.delete_session("ann", "s2").remaining in (0, None)
    assert SECRET.encode() not in _bytes(place)
    assert store.users() == []


def test_a_user_goes_whole_and_alone(store: Store, place: str) -> None:
    for user, words in (("ann", SECRET), ("bob", PLAIN)):
        remember(store, user, "rsum", "s1", [add_unit("u1", text=words)], words, "They both say this very sentence")
    lines_of_bob = list(store.export("bob"))
    receipt = store.delete_user("ann")
    assert receipt.rows == {"banks": 1, "batches": 1, "changes": 1, "jobs": 1, "sessions": 1, "turns": 2}
    assert receipt.remaining in (0, None)
    assert store.users() == ["bob"]
    assert list(store.export("bob")) == lines_of_bob
    assert SECRET.encode() not in _bytes(place)
    with pytest.raises(NotFound, match="there is no user 'ann'"):
        store.delete_user("ann")


def test_a_long_text_leaves_no_page_behind(store: Store, place: str) -> None:
    """Longer than a page of the database, with quotes and letters that JSON writes in its own way."""
    lines = [f'Line {number}: "the ñandú" said\t안녕 {number * 7919}\n' for number in range(2000)]
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text="".join(lines))], "".join(lines))
    remember(store, "ann", "rsum", "s2", [add_unit("u2", "s2", text=PLAIN)])
    receipt = store.delete_session("ann", "s1")
    assert receipt.remaining in (0, None)
    content = _bytes(place)
    assert not any(str(number * 7919).encode() + b"\n" in content for number in range(100, 2000))


def test_vectors_of_erased_words_go(store: Store) -> None:
    encoder = CachedEncoder(_Ones(), store.embeddings)
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text=SECRET), add_unit("u2", text=PLAIN)])
    encoder.encode([new_unit("u1", text=SECRET).key, new_unit("u2", text=PLAIN).key], "passage")
    assert store.delete_units("ann", "rsum", "u1").rows["embeddings"] == 1
    inner = _Ones()
    CachedEncoder(inner, store.embeddings).encode([f"key: {SECRET}", f"key: {PLAIN}"], "passage")
    assert inner.seen == [f"key: {SECRET}"]


def test_index_files_of_the_user_go_and_those_of_others_stay(store: Store, place: str, tmp_path: Path) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text=SECRET)])
    with Store.open(place, indexes=tmp_path / "index") as store:
        files = [store.indexes.path(user, "rsum", "ones") for user in ("ann", "bob")]
        for file in files:
            assert file is not None
            file.parent.mkdir(parents=True)
            file.write_bytes(b"vectors")
        receipt = store.delete_units("ann", "rsum", "u1")
        assert receipt.rows["index files"] == 1
        assert receipt.remaining in (0, None)
        assert store.indexes.all_files() == files[1:]


@on_sqlite
def test_traces_in_index_files_are_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text=SECRET)], "Nothing much")
    mine, other = (store.indexes.path(user, "rsum", "ones") for user in ("ann", "bob"))
    assert mine is not None
    assert other is not None
    for file, secret in ((mine, b"vectors"), (other, f"key: {SECRET}".encode())):
        file.parent.mkdir(parents=True)
        file.write_bytes(secret)
    monkeypatch.setattr("shutil.rmtree", lambda folder, onerror: onerror(None, folder, "read-only"))
    receipt = store.delete_units("ann", "rsum", "u1")
    assert receipt.remaining == receipt.checked + 1 > 1


class _Ones:
    """An encoder that remembers what it was asked."""

    identity, dimension = "ones", 4

    def __init__(self) -> None:
        self.seen: list[str] = []

    def encode(self, texts: Sequence[str], side: Side) -> NDArray[np.float32]:
        self.seen += texts
        return np.full((len(texts), 4), 0.5, dtype=np.float32)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives(), st.data())
def test_after_any_erasure_the_rest_still_applies(store: Store, life: list[LifeSession], data: st.DataObject) -> None:
    user = f"user{len(store.users())}"
    replay(store, user, "rsum", life)
    units = [change.unit.id for change in store.changes(user, "rsum") if isinstance(change, AddUnit)]
    erase_session = data.draw(st.booleans())
    if units and not erase_session:
        unit = data.draw(st.sampled_from(units))
        receipt = store.delete_units(user, "rsum", unit, sources=data.draw(st.booleans()))
        assert unit not in store.bank(user, "rsum").units
    else:
        entry = data.draw(st.sampled_from(life))
        receipt = store.delete_session(user, entry.id)
        assert entry.id not in [info.id for info in store.sessions(user)]
        assert all(unit.session != entry.id for unit in store.bank(user, "rsum").units.values())
    assert receipt.remaining in (0, None)
    store.bank(user, "rsum")
    for session in store.pending_sessions(user, "rsum"):
        assert store.journal(user, "rsum").finish(session.id, [])


@on_sqlite
def test_what_is_erased_is_known_by_its_digests_and_they_outlast_the_user(store: Store) -> None:
    """Whatever erases it; the sessions that remain when a user is erased may be imported again."""
    words = ("one", "two", "three", "four", "five", "six")
    for number, changes in enumerate(([add_unit("u1")], [], [])):
        remember(store, "ann", "rsum", f"s{number + 1}", changes, *words[2 * number : 2 * number + 2])
    says = [Message("assistant" if at % 2 else "user", text) for at, text in enumerate(words)]

    def known() -> int:
        return sum(store.unlogged.holds("ann", message) for message in says)

    store.delete_units("ann", "rsum", "u1")
    assert known() == 0
    remember(store, "ann", "rsum", "s4", [add_unit("u4", "s4", sources=["s1.0"])])
    store.delete_units("ann", "rsum", "u4", sources=True)
    assert known() == 2
    store.delete_session("ann", "s2")
    assert known() == 4
    store.delete_user("ann")
    assert known() == 6
    assert store.unlogged.erased_sessions("ann", ["s1", "s2", "s3"]) == {"s2"}


def test_an_open_session_can_lose_a_turn_and_go_on(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "one", "two"))
    journal.commit("s1.1", [add_unit("u1", sources=("s1.1",))])
    assert store.delete_units("ann", "rsum", "u1", sources=True).reread == {}
    journal.add_turns("s1", make_turns("s1", "one", "two", "three")[2:])
    assert [turn.id for turn in store.session("ann", "s1").turns] == ["s1.0", "s1.2"]


def test_an_open_session_keeps_what_was_made_of_its_other_turns(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", SECRET, "So it is.", PLAIN, "Indeed."))
    journal.commit("s1.1", [add_unit("u1", text=SECRET, sources=("s1.0",))])
    journal.commit("s1.3", [add_unit("u2", text=PLAIN, sources=("s1.2",)), AddLink(Link("u2", "u1", "next"), START)])
    assert store.delete_units("ann", "rsum", "u1", sources=True).remaining in (0, None)
    assert list(store.bank("ann", "rsum").units) == ["u2"]


def test_a_turn_with_the_id_of_an_erased_one_may_cause_changes(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "one", "two"))
    journal.commit("s1.1", [add_unit("u1", sources=("s1.1",))])
    journal.commit("forget:s1.1", [Hide("s1.1", "s1.1", START)])
    journal.commit("forget:s1.1/notes", [SetNote("summary", "before", START)])
    store.delete_units("ann", "rsum", "u1", sources=True)
    journal = store.journal("ann", "rsum")
    journal.bank()
    journal.commit("forget:s1.1", [Hide("s1.0", "s1.1", START)])
    journal.commit("forget:s1.1/notes", [SetNote("summary", "now", START)])
    bank = store.bank("ann", "rsum")
    assert (set(bank.hidden), bank.notes) == ({"s1.0"}, {"summary": "now"})


def test_an_erasure_of_turns_is_a_conflict_for_all_who_are_reading_them(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", SECRET, PLAIN))
    journal.close("s1")
    store.journal("ann", "facts").commit("s1.1", [add_unit("f1", sources=("s1.0",))])
    store.delete_units("ann", "facts", "f1", sources=True)
    with pytest.raises(Conflict):
        journal.finish("s1", [add_unit("u1", text=SECRET, sources=("s1.0",))])


def test_every_reply_to_an_erased_turn_goes(store: Store) -> None:
    """A reply that was made again follows the one before it."""
    turns = make_turns("s1", "one", "Yes.", "Yes again.", "Other.", "two", "No.")
    turns[2] = replace(turns[2], role="assistant")
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", turns)
    journal.commit("s1.1", [add_unit("u1", sources=("s1.0",))])
    store.delete_units("ann", "rsum", "u1", sources=True)
    assert [turn.text for turn in store.session("ann", "s1").turns] == ["two", "No."]


def test_replies_that_quote_an_erased_unit_go_with_its_turns(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text=SECRET)], SECRET, "So it is.")
    remember(store, "ann", "rsum", "s2", [], "Where is the key?", f'You said: "{SECRET}".', PLAIN, "Indeed.")
    assert store.delete_units("ann", "rsum", "u1").rows == {"changes": 1}
    assert store.replies_with("ann", [SECRET]) == ["s2.1"]
    remember(store, "ann", "rsum", "s3", [add_unit("u3", "s3", SECRET)], SECRET)
    store.delete_units("ann", "rsum", "u3", sources=True)
    assert store.replies_with("ann", [SECRET]) == []
    assert [turn.text for turn in store.session("ann", "s2").turns] == ["Where is the key?", PLAIN, "Indeed."]


def test_the_versions_before_an_edit_go_with_it(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text=SECRET), add_unit("u2", text=PLAIN)])
    journal = store.journal("ann", "rsum")
    journal.bank()
    for new, old in (("e1", "u1"), ("e2", "e1"), ("e3", "u2")):
        journal.commit(f"edit:{new}", [add_unit(new, text=f"As {new}"), Hide(old, new, START)])
    store.undo_batch("ann", "rsum", "edit:e3")
    store.delete_units("ann", "rsum", "e2")
    assert set(store.bank("ann", "rsum").units) == {"u2"}
    store.delete_units("ann", "rsum", "e3")
    assert set(store.bank("ann", "rsum").units) == {"u2"}, "it is in use again"


def test_nobody_is_never_everybody(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    with pytest.raises(BadInput, match="the name of the user is empty"):
        store.delete_user("")
    assert store.users() == ["ann"]
