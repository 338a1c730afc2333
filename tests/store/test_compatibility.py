"""A data directory and an export of an earlier release, written once and never changed: both are read exactly.

data/memory.sql is the dump of its database, data/export.jsonl its export of the user ana.
"""

import os
import sqlite3
from pathlib import Path

import pytest

from localmem.store import Backlog, Store

DATA = Path(__file__).parent / "data"
LINES = (DATA / "export.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def earlier_store(tmp_path: Path) -> Path:
    connection = sqlite3.connect(tmp_path / "memory.db")
    connection.executescript((DATA / "memory.sql").read_text(encoding="utf-8"))
    connection.close()
    return tmp_path


@pytest.mark.skipif("LOCALMEM_TEST_DATABASE" in os.environ, reason="the dump is of SQLite")
def test_a_store_of_an_earlier_release_opens_and_works(earlier_store: Path) -> None:
    with Store.open(earlier_store) as store:
        assert store.problems() == []
        assert list(store.export("ana")) == LINES
        bank = store.bank("ana", "rsum")
        assert [unit.text for unit in bank.live()] == ["Ana lives in Łódź.", "Ana moved."]
        assert bank.notes == {"summary": "Ana lives in Łódź."}
        assert store.vectors.encoder() == ("minilm-l6-v2@0123/4567", 4)
        assert store.backlog("ana", "rsum") == Backlog(sessions=1, turns=1, failed=1)
        assert not store.history("ana", "rsum", "u3").live
        journal = store.journal("ana", "rsum")
        assert journal.finish("s3", [])
        assert store.delete_session("ana", "s1").remaining == 0
        assert list(store.bank("ana", "rsum").live()) == []


def test_an_export_of_an_earlier_release_is_imported_unchanged(store: Store) -> None:
    assert store.restore(LINES, "export.jsonl").new
    assert list(store.export("ana")) == LINES
    assert not store.restore(LINES, "export.jsonl").new
