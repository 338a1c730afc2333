"""Backups while the store is in use, and their way back: of one moment, verified, nothing overwritten unasked."""

import os
import threading
from pathlib import Path

import pytest

from localmem.errors import BadInput, StoreError
from localmem.store import Store
from localmem.store.backup import back_up, check_backup, restore_backup
from tests.store.fixtures import EXPORT, build_store
from tests.store.lives import add_unit, make_turns, remember

pytestmark = pytest.mark.skipif("LOCALMEM_TEST_DATABASE" in os.environ, reason="is about SQLite's file")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store with a user, closed."""
    with Store.open(tmp_path / "home") as store:
        remember(store, "ann", "rsum", "s1", [add_unit("u1")])
        store.embeddings.put("words", {"d1": b"1234"})
    return tmp_path / "home"


def _lines(home: Path) -> list[str]:
    with Store.open(home) as store:
        assert store.problems() == []
        return list(store.export("ann"))


def test_a_backup_is_one_file_with_everything(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backups" / "monday.db"
    backup = back_up(home, file)
    assert backup.rows == {"users": 1, "sessions": 1, "turns": 2, "batches": 1, "changes": 1}
    assert check_backup(file).rows == backup.rows
    assert [path.name for path in file.parent.iterdir()] == ["monday.db"]
    assert file.stat().st_mode & 0o777 == 0o600
    restored = restore_backup(file, tmp_path / "other")
    assert restored.aside is None
    assert _lines(tmp_path / "other") == _lines(home)
    with Store.open(tmp_path / "other") as store:
        assert store.embeddings.get("words", ["d1"]) == {"d1": b"1234"}


def test_a_backup_is_of_one_moment_while_others_write(home: Path, tmp_path: Path) -> None:
    stop = threading.Event()
    with Store.open(home) as store:

        def write() -> None:
            number = 0
            while not stop.is_set():
                remember(store, "bob", "rsum", f"s{number}", [add_unit(f"u{number}", f"s{number}")])
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            backups = [back_up(home, tmp_path / f"{number}.db").rows for number in range(5)]
        finally:
            stop.set()
            writer.join()
        rows = [(each["batches"], each["turns"] // 2) for each in backups]
    assert all(turns - batches in (0, 1) for batches, turns in rows), rows
    assert rows == sorted(rows)
    restore_backup(tmp_path / "4.db", tmp_path / "other")
    assert _lines(tmp_path / "other")[1:] == _lines(home)[1:]


def test_a_store_that_is_there_is_put_aside_and_only_when_asked(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    back_up(home, file)
    before = _lines(home)
    with Store.open(home) as store:
        remember(store, "ann", "rsum", "s2", [add_unit("u2", "s2")])
        store.indexes.path("ann", "rsum", "words")
    after = _lines(home)
    with pytest.raises(StoreError, match=r"has a store already; choose another --data-dir, or put it aside with --fo"):
        restore_backup(file, home)
    assert _lines(home) == after
    restored = restore_backup(file, home, replace=True)
    assert _lines(home) == before
    assert restored.aside == home / "memory.db.replaced-1"
    restore_backup(restored.aside, tmp_path / "old")
    assert _lines(tmp_path / "old") == after
    assert restore_backup(file, home, replace=True).aside == home / "memory.db.replaced-2"


def test_a_store_in_use_is_not_replaced(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    back_up(home, file)
    with Store.open(home) as store:
        store.journal("ann", "rsum").add_turns("s3", make_turns("s3", "one"))
        with pytest.raises(StoreError, match=r"memory\.db is in use; stop the server and other commands"):
            restore_backup(file, home, replace=True)
        store.journal("ann", "rsum").add_turns("s3", make_turns("s3", "one", "two"))
    assert any('"two"' in line for line in _lines(home))
    assert sorted(path.name for path in home.iterdir()) == ["memory.db"]


@pytest.mark.parametrize(("change", "message"), [("cut", "damaged"), ("flip", "damaged"), ("words", "not a backup")])
def test_a_damaged_backup_is_refused_and_the_store_stays(change: str, message: str, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    back_up(home, file)
    content = file.read_bytes()
    half = len(content) // 2
    changed = {"cut": content[:half], "flip": content[:half] + b"\xff" * 4096 + content[half + 4096 :], "words": b"a"}
    file.write_bytes(changed[change])
    before = _lines(home)
    with pytest.raises(BadInput, match=message) as caught:
        restore_backup(file, home, replace=True)
    assert "\n" not in str(caught.value)
    assert _lines(home) == before


def test_a_damaged_store_is_told_by_its_own_name(home: Path, tmp_path: Path) -> None:
    content = (home / "memory.db").read_bytes()
    (home / "memory.db").write_bytes(content[:-4096] + b"\xff" * 4096)
    with pytest.raises(StoreError, match=r"memory\.db is damaged, or .*; run `localmem doctor`") as caught:
        back_up(home, tmp_path / "backup.db")
    assert ".partial" not in str(caught.value)
    assert not (tmp_path / "backup.db").exists()


def test_what_is_not_there_or_cannot_be_copied_is_one_line(home: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no backup at"):
        restore_backup(tmp_path / "none.db", tmp_path / "other")
    with pytest.raises(StoreError, match="there is no store at"):
        back_up(tmp_path / "other", tmp_path / "backup.db")
    assert not (tmp_path / "other").exists()
    with pytest.raises(BadInput, match=r"memory\.db cannot|cannot write"):
        back_up(home, home / "memory.db" / "inside.db")
    (home / "memory.db").write_bytes(b"not a database, but words, and enough of them to be seen as such")
    with pytest.raises(StoreError, match="is not a localmem store"):
        back_up(home, tmp_path / "backup.db")
    assert not list(tmp_path.glob("*backup*"))


def test_a_backup_of_an_earlier_version_becomes_a_store_of_this_one(tmp_path: Path) -> None:
    build_store(tmp_path / "old", "0001")
    restore_backup(tmp_path / "old" / "memory.db", tmp_path / "new")
    with Store.open(tmp_path / "new") as store:
        assert list(store.export("ana")) == EXPORT
