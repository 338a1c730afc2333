"""`localmem backup`, `restore` and `doctor --repair` at the terminal."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from localmem.cli import root
from localmem.errors import BadInput, StoreError
from localmem.store import Store
from tests.store.lives import add_unit, remember


@pytest.fixture
def home(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "home") as store:
        remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    return tmp_path / "home"


def _run(*arguments: object) -> str:
    result = CliRunner().invoke(root, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def test_a_backup_goes_to_another_folder_and_back(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"
    counts = "1 users, 1 sessions, 2 turns, 1 batches, 1 changes; verified"
    assert _run("backup", file, "--data-dir", home) == f"backed up to {file}: {counts}\n"
    other = tmp_path / "other"
    assert _run("restore", file, "--data-dir", other) == f"restored {other / 'memory.db'}: {counts}\n"
    with pytest.raises(StoreError, match="has a store already"):
        _run("restore", file, "--data-dir", other)
    document = json.loads(_run("restore", file, "--data-dir", other, "--force", "--json"))
    assert document["aside"] == str(other / "memory.db.replaced-1")
    assert document["rows"]["turns"] == 2


def test_files_for_an_age_recipient_are_opened_by_their_identity_alone(home: Path, tmp_path: Path) -> None:
    pyrage = pytest.importorskip("pyrage")
    pairs = [pyrage.x25519.Identity.generate() for _ in range(2)]
    for name, pair in zip(("own", "other"), pairs, strict=True):
        (tmp_path / name).write_text(f"# created: today\n{pair}\n")
    backup, export, recipient = tmp_path / "backup.age", tmp_path / "export.age", pairs[0].to_public()
    _run("backup", backup, "--age", recipient, "--data-dir", home)
    _run("export", "--user", "ann", "--out", export, "--age", recipient, "--data-dir", home)
    for file in (backup, export):
        assert file.read_bytes().startswith(b"age-encryption.org/v1")
        assert b"add_unit" not in file.read_bytes()
    for identity in ("other", "absent"):
        with pytest.raises(BadInput):
            _run("restore", backup, "--identity", tmp_path / identity, "--data-dir", tmp_path / "new")
    with pytest.raises(BadInput, match="no public key of age"):
        _run("export", "--user", "ann", "--out", export, "--age", "age1", "--data-dir", home)
    _run("restore", backup, "--identity", tmp_path / "own", "--data-dir", tmp_path / "new")
    _run("import", export, "--identity", tmp_path / "own", "--data-dir", tmp_path / "imported")
    for folder in ("new", "imported"):
        with Store.open(tmp_path / folder) as store:
            assert len(store.session("ann", "s1").turns) == 2
    assert [path.name for path in home.iterdir() if path.name.startswith(".")] == []


def test_a_repair_says_what_was_saved(home: Path, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    lines = _run("doctor", "--repair", saved, "--data-dir", home).splitlines()
    assert lines[0].startswith(f"saved in {saved}: 1 sessions, 2 turns, 1 batches, 1 changes, 1 jobs")
    assert lines[1] == "lost: nothing"
    with Store.open(saved) as store:
        assert len(store.session("ann", "s1").turns) == 2
