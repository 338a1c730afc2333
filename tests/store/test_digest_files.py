"""DigestFiles: what a set holds, after a restart and in other processes too; nothing readable is on the disk."""

import errno
from pathlib import Path

import pytest

from localmem.errors import StoreError
from localmem.store import digest_files
from localmem.store.digest_files import DigestFiles
from localmem.store.encryption import Keys


def holds(digests: DigestFiles, user: str, text: str) -> bool:
    return digests.find(user, [text, "Nobody said this."]) == {text}


@pytest.fixture(params=["plain", "encrypted"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Keys | None:
    return Keys.create(tmp_path / "memory.keys", b"a secret") if request.param == "encrypted" else None


def test_a_set_holds_what_was_added_for_its_user(tmp_path: Path, keys: Keys | None) -> None:
    folder = tmp_path / "unlogged"
    first, other = DigestFiles(folder, keys), DigestFiles(folder, keys)
    assert not first.count("ann")
    assert not folder.exists()
    first.add("ann", "My PIN is 4711.", "Half of a character: \ud83d")
    first.add("ann", "My PIN is 4711.")
    assert (holds(other, "ann", "My PIN is 4711."), holds(other, "ben", "My PIN is 4711.")) == (True, False)
    other.add("ann", "I keep bees.")
    assert holds(first, "ann", "I keep bees.")
    assert not holds(first, "ann", "I keep cats.")
    assert first.count("ann") == 3
    assert holds(DigestFiles(folder, keys), "ann", "My PIN is 4711.")


def test_the_files_tell_nothing_and_an_encrypted_store_has_no_key_beside_them(
    tmp_path: Path, keys: Keys | None
) -> None:
    folder = tmp_path / "unlogged"
    DigestFiles(folder, keys).add("ann", "My PIN is 4711.", "I keep bees.")
    assert (folder / "key").exists() == (keys is None)
    (file,) = [path for path in folder.iterdir() if path.name != "key"]
    assert file.stat().st_size == 2 * 16
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o077 == 0
        assert b"PIN" not in path.read_bytes()
        assert "ann" not in path.name


def test_a_full_set_drops_the_oldest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_files, "_MOST", 3)
    digests = DigestFiles(tmp_path, None)
    for number in range(7):
        digests.add("ann", str(number))
    assert [number for number in range(7) if holds(digests, "ann", str(number))] == [3, 4, 5, 6]


def test_without_a_folder_nothing_is_held(tmp_path: Path) -> None:
    digests = DigestFiles(None, None)
    digests.add("ann", "I keep bees.")
    assert not holds(digests, "ann", "I keep bees.")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="check the disk"):
        DigestFiles(tmp_path / "file" / "unlogged", None).add("ann", "I keep bees.")


def test_a_full_disk_is_one_line_with_its_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(StoreError, match="is full; free some space, then try again"):
            DigestFiles(tmp_path, None).add("ann", "I keep bees.")
    DigestFiles(tmp_path, None).add("ann", "I keep bees.")
    assert holds(DigestFiles(tmp_path, None), "ann", "I keep bees.")


def test_what_comes_after_a_torn_write_is_known(tmp_path: Path) -> None:
    folder = tmp_path / "unlogged"
    digests = DigestFiles(folder, None)
    digests.add("ann", "one")
    (path,) = (each for each in folder.iterdir() if each.name != "key")
    with path.open("ab") as file:
        file.write(b"torn!")
    digests.add("ann", "two")
    for each in (digests, DigestFiles(folder, None)):
        assert (holds(each, "ann", "one"), holds(each, "ann", "two")) == (True, True)


def test_a_file_in_the_place_of_a_deleted_one_is_another(tmp_path: Path) -> None:
    folder = tmp_path / "unlogged"
    first, other = DigestFiles(folder, None), DigestFiles(folder, None)
    first.add("ann", "one")
    assert holds(other, "ann", "one")
    (path,) = (each for each in folder.iterdir() if each.name != "key")
    path.unlink()
    first.add("ann", "two")
    assert (holds(other, "ann", "one"), holds(other, "ann", "two")) == (False, True)
