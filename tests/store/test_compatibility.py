"""Data directories of every version of the schema, and an export of an earlier release: all are read exactly.

data/NUMBER.sql is the dump of a database, data/export.jsonl the export of its user ana.
"""

from pathlib import Path

import pytest

from localmem.store import Backlog, Store
from tests.store.fixtures import DATA, EXPORT, REVISIONS, build_store, dump_store


def test_every_version_has_a_dump() -> None:
    dumps = sorted(path.stem for path in DATA.glob("*.sql"))
    assert dumps == REVISIONS, "run `python -m tests.store.fixtures` and commit the dump that it writes"


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_store_of_an_earlier_release_opens_and_works(revision: str, tmp_path: Path) -> None:
    build_store(tmp_path, revision)
    with Store.open(tmp_path) as store:
        assert store.problems() == []
        assert list(store.export("ana")) == EXPORT
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


def test_all_versions_are_migrated_to_the_same_tables(tmp_path: Path) -> None:
    schemas = set()
    for revision in REVISIONS:
        build_store(tmp_path / revision, revision)
        Store.open(tmp_path / revision).close()
        lines = dump_store(tmp_path / revision).splitlines()
        schemas.add("\n".join(line for line in lines if not line.startswith("INSERT")))
    assert len(schemas) == 1


def test_an_export_of_an_earlier_release_is_imported_unchanged(store: Store) -> None:
    assert store.restore(EXPORT, "export.jsonl").new
    assert list(store.export("ana")) == EXPORT
    assert not store.restore(EXPORT, "export.jsonl").new
