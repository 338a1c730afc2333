"""A store with damaged pages: what can be read is saved into a new one, and the original stays as it is."""

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from localmem.config import load_settings
from localmem.errors import BadInput, StoreError
from localmem.runtime.diagnostics import check_all
from localmem.store import Store
from localmem.store.repair import Repair, lost_counts, repair
from tests.store.lives import add_unit, make_turns

pytestmark = pytest.mark.skipif("LOCALMEM_TEST_DATABASE" in os.environ, reason="is about SQLite's file")

USERS = ("ann", "bob")
_SESSIONS = 60
_PAGE = 4096


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two users whose tables take several pages each."""
    home = tmp_path_factory.mktemp("sound")
    with Store.open(home) as store:
        for user in USERS:
            journal = store.journal(user, "rsum")
            for number in range(_SESSIONS):
                name = f"s{number:02d}"
                journal.add_turns(name, make_turns(name, *(f"{user} says {n} in {name}. " * 8 for n in range(6))))
                journal.close(name)
                journal.finish(name, [add_unit(f"u{number}", name)])
        store.embeddings.put("words", {f"d{number}": bytes(1024) for number in range(20)})
    return home


def _damage(home: Path, sound: Path, table: str, *, root: bool = False) -> None:
    """Overwrite a leaf page in the middle of the table, or its root."""
    shutil.copytree(sound, home)
    with sqlite3.connect(home / "memory.db") as connection:
        (first,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
        pages = [
            row[0]
            for row in connection.execute("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf'", (table,))
        ]
    connection.close()
    page = first if root else pages[len(pages) // 2]
    with (home / "memory.db").open("r+b") as file:
        file.seek((page - 1) * _PAGE)
        file.write(b"\xff" * _PAGE)


def _content(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}


def _repair(home: Path, tmp_path: Path) -> Repair:
    before = _content(home)
    summary = repair(home, tmp_path / "saved")
    assert _content(home) == before
    return summary


@pytest.mark.parametrize("table", ["turns", "changes", "batches", "sessions", "jobs", "embeddings"])
def test_one_damaged_page_costs_its_rows_only(table: str, sound: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    _damage(home, sound, table)
    with Store.open(home) as store:
        assert store.problems() != []
    summary = _repair(home, tmp_path)
    assert set(summary.lost) <= {table, "changes"}
    missing = summary.lost.get(table) or 0
    assert 0 < missing <= (len(USERS) * _SESSIONS if table == "jobs" else 30)  # all jobs are on one page
    with Store.open(tmp_path / "saved") as store, Store.open(sound) as original:
        assert store.problems() == []
        for user in USERS:
            texts = {turn.text for info in store.sessions(user) for turn in store.session(user, info.id).turns}
            expected = {turn.text for info in original.sessions(user) for turn in original.session(user, info.id).turns}
            assert texts <= expected
            assert texts == expected or table == "turns"
            assert len(store.sessions(user)) == _SESSIONS
            store.bank(user, "rsum")  # applies
            if table in ("changes", "batches", "sessions", "jobs"):
                assert (user, "rsum") in summary.rebuilt
                assert len(store.pending_sessions(user, "rsum")) == _SESSIONS


@pytest.mark.parametrize("table", ["turns", "jobs"])
def test_doctor_sees_a_damaged_page_and_changes_nothing(table: str, sound: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    _damage(home, sound, table)
    before = (home / "memory.db").read_bytes()
    findings = [each for each in check_all(load_settings(None, {"data": home})) if each.area == "store"]
    assert "bad" in {each.state for each in findings}
    assert any("--repair" in each.detail for each in findings)
    assert (home / "memory.db").read_bytes() == before


def test_a_lost_root_is_reported_as_an_unknown_number_and_the_rest_is_saved(sound: Path, tmp_path: Path) -> None:
    _damage(tmp_path / "home", sound, "embeddings", root=True)
    summary = _repair(tmp_path / "home", tmp_path)
    assert summary.saved["turns"] == 2 * 6 * _SESSIONS
    assert summary.saved["embeddings"] == 0
    assert lost_counts(summary.lost) == ["20 embeddings"]


def test_what_was_in_the_log_only_is_saved_too(sound: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(sound, home)
    with Store.open(home) as store:
        store.journal("ann", "rsum").add_turns("last", make_turns("last", "the last words"))
        summary = repair(home, tmp_path / "saved")
    assert summary.lost == {}
    with Store.open(tmp_path / "saved") as store:
        assert store.session("ann", "last").turns[0].text == "the last words"
        assert store.pending_jobs() == []


def test_where_nothing_can_be_saved_or_something_is_in_the_way_it_says_so(sound: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no store at"):
        repair(tmp_path / "none", tmp_path / "saved")
    with pytest.raises(BadInput, match="has a store already; name a new folder"):
        repair(sound, sound)
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "memory.db").write_text("words, and no database at all, whatever its name says" * 100)
    with pytest.raises(StoreError, match=r"nothing of .* can be read; restore a backup"):
        repair(tmp_path / "words", tmp_path / "saved")
