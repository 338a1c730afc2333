"""The proof of an erasure sees traces where there are some, mends what it can, and owns up to the rest."""

import os
import sqlite3
from pathlib import Path

import pytest

from localmem.store import Store, database
from localmem.store.proof import prove
from tests.store.lives import added, hold

pytestmark = pytest.mark.skipif("LOCALMEM_TEST_DATABASE" in os.environ, reason="is about SQLite's file")

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


def test_traces_are_found_and_wiped(store: Store, tmp_path: Path) -> None:
    place = Path(store.where).parent
    hold(store, "ann", "rsum", "s1", [added("u1")], SECRET, "Good to know")
    _careless_delete(place)
    store._database.settle()
    assert _holds_secret(place)
    checked, left = prove(store._database, [SECRET])
    assert checked == 3
    assert left == 0
    assert not _holds_secret(place)


def test_words_that_someone_else_said_are_no_trace(store: Store) -> None:
    place = Path(store.where).parent
    for user in ("ann", "bob"):
        hold(store, user, "rsum", "s1", [], SECRET, "Good to know")
    assert store.delete_user("ann").left == 0
    assert _holds_secret(place)
    assert store.delete_user("bob").left == 0
    assert not _holds_secret(place)


def test_what_another_process_still_reads_is_owned_up_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_BUSY", 0.1)
    with Store.open(tmp_path) as store:
        hold(store, "ann", "rsum", "s1", [], SECRET)
        reader = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM turns").fetchone()
        assert store.delete_user("ann").left == 3
        assert _holds_secret(tmp_path)
        reader.close()
        assert prove(store._database, [SECRET]) == (3, 0)
        assert not _holds_secret(tmp_path)
