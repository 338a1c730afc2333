"""The check of an erasure finds every trace, removes what it can, and reports the rest."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localmem.store import Store, database
from localmem.store.erase_check import Check, _file_chunks, _text_chunks, check_erasure, find_pieces, pieces
from tests.store.lives import add_unit, make_turns, on_sqlite, remember, texts

SECRET = "The key is under the third flowerpot"


def _careless_delete(place: Path) -> None:
    """Rows go as SQLite drops them by itself: the bytes stay in the pages."""
    connection = sqlite3.connect(place / "memory.db")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("DELETE FROM turns WHERE text = ?", (SECRET,))
    connection.commit()
    connection.close()


def _holds_secret(place: Path) -> bool:
    return any(SECRET.encode() in file.read_bytes() for file in place.glob("memory.db*"))


@on_sqlite
def test_traces_are_found_and_wiped(store: Store, tmp_path: Path) -> None:
    place = Path(store.where).parent
    remember(store, "ann", "rsum", "s1", [add_unit("u1")], SECRET, "Good to know")
    _careless_delete(place)
    store._database.checkpoint()
    assert _holds_secret(place)
    assert check_erasure(store._database, [SECRET]) == Check(3, 0)
    assert not _holds_secret(place)


@on_sqlite
def test_words_that_someone_else_said_are_no_trace(store: Store) -> None:
    place = Path(store.where).parent
    for user in ("ann", "bob"):
        remember(store, user, "rsum", "s1", [], SECRET, "Good to know")
    assert store.delete_user("ann").remaining == 0
    assert _holds_secret(place)
    assert store.delete_user("bob").remaining == 0
    assert not _holds_secret(place)


@on_sqlite
def test_the_words_of_the_schema_are_no_trace(store: Store) -> None:
    journal = store.journal("ann", "rsum")
    journal.add_turns("s1", make_turns("s1", "CREATE TABLE turns"))
    assert store.delete_session("ann", "s1").remaining in (0, None)


def test_what_another_process_still_reads_is_owned_up_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY", 0.1)
    with Store.open(tmp_path) as store:
        remember(store, "ann", "rsum", "s1", [], SECRET)
        reader = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM turns").fetchone()
        assert store.delete_user("ann").remaining == 3
        assert _holds_secret(tmp_path)
        reader.close()
        assert check_erasure(store._database, [SECRET]) == Check(3, 0)
        assert not _holds_secret(tmp_path)


_VISIT = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT count(*) FROM turns'); c.close()"


def test_after_the_search_another_program_does_not_take_itself_for_the_last_one(tmp_path: Path) -> None:
    """Closing the file would end the store's locks, and who closes the database last deletes its log."""
    with Store.open(tmp_path) as store, Store.open(tmp_path):
        remember(store, "ann", "rsum", "s1", [], SECRET)
        assert store.delete_user("ann").remaining == 0
        subprocess.run([sys.executable, "-c", _VISIT, str(tmp_path / "memory.db")], check=True)
        remember(store, "bob", "rsum", "s2", [], "I keep bees")
        assert (tmp_path / "memory.db-wal").stat().st_size > 0
        with sqlite3.connect(tmp_path / "memory.db") as other:
            assert other.execute("SELECT text FROM turns").fetchall() == [("I keep bees",)]


blobs = st.binary(max_size=200)


@given(st.lists(st.binary(min_size=8, max_size=8) | st.binary(min_size=16, max_size=16)), st.lists(blobs), st.data())
def test_it_finds_what_a_plain_search_finds(searched: list[bytes], plain: list[bytes], data: st.DataObject) -> None:
    places = data.draw(st.lists(st.sampled_from(searched), max_size=3)) if searched else []
    hidden = [data.draw(blobs) + piece + data.draw(blobs) for piece in places]
    expected = {piece for piece in searched if any(piece in blob for blob in (*plain, *hidden))}
    assert find_pieces(searched, [*plain, *hidden]) == expected


@given(texts.map(lambda text: text * 3))
def test_a_text_is_known_by_its_pieces(text: str) -> None:
    text_pieces = pieces([text])
    assert all(len(piece) in (8, 16) for piece in text_pieces)
    assert find_pieces(text_pieces, [b"before " + text.encode() + b" after"]) >= {
        piece for piece in text_pieces if piece in text.encode()
    }
    assert text_pieces or len(text.encode()) < 8


def test_the_forms_of_json_are_known() -> None:
    text = 'She said "no"\nand left the room for good'
    written = b'{"text":"She said \\"no\\"\\nand left the room for good"}'
    assert find_pieces(pieces([text]), [written])
    assert pieces(["short"]) == set()


def test_nothing_falls_between_two_chunks(tmp_path: Path) -> None:
    file, piece = tmp_path / "file", b"sixteen bytes!!!"
    for place in ((1 << 23) - 5, (1 << 23) - 15, (1 << 23), (1 << 24) - 1):
        file.write_bytes(b"\0" * place + piece + b"\0" * 9)
        assert find_pieces([piece], _file_chunks([file, tmp_path / "missing"])) == {piece}


def test_texts_are_joined() -> None:
    assert b"".join(_text_chunks(["one", "two"])) == b"one\0two"
    assert len(list(_text_chunks("x" * (1 << 20) for _ in range(20)))) > 1
