"""The file of keys: digests alone, rotation, expiry, revocation, and what is wrong with a file."""

import hmac
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from localmem.errors import BadInput, BadSettings, NotFound
from localmem.server.api_keys import KeyFile, KeyRing, digest_key
from localmem.settings_sections import KeySettings
from tests.fakes import START

ANN = KeySettings(user="ann")


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys.json")


def is_valid(file: KeyFile, text: str, *, days: float = 0) -> bool:
    return KeyRing({}, file).find(digest_key(text), START + timedelta(days=days)) is not None


def test_the_file_holds_no_key_and_only_the_owner_reads_it(file: KeyFile) -> None:
    key, text = file.create(ANN, START)
    content = file.path.read_text(encoding="utf-8")
    assert text not in content
    assert text.removeprefix("localmem-") not in content
    assert key.digest in content
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert (len(text) > 40, is_valid(file, text), is_valid(file, text[:-1])) == (True, True, False)


def test_both_keys_of_a_rotation_are_valid_until_the_old_one_ends(file: KeyFile) -> None:
    key, old = file.create(KeySettings(user="ann", scopes=("read",)), START)
    successor, new = file.rotate(key.id, START, days=7)
    assert (successor.user, successor.scopes) == ("ann", ("read",))
    assert [is_valid(file, text, days=6.9) for text in (old, new)] == [True, True]
    assert [is_valid(file, text, days=7) for text in (old, new)] == [False, True]
    with pytest.raises(BadInput, match="is expired; make a new one"):
        file.rotate(key.id, START + timedelta(days=8), days=7)


def test_a_rotation_does_not_prolong_a_key(file: KeyFile) -> None:
    key, old = file.create(ANN, START, days=2)
    file.rotate(key.id, START, days=7)
    assert [is_valid(file, old, days=days) for days in (1.9, 2)] == [True, False]


def test_a_revoked_key_ends_at_once_for_whoever_has_the_file_open(file: KeyFile) -> None:
    key, text = file.create(ANN, START)
    ring = KeyRing({}, file)
    assert ring.find(key.digest, START) is not None
    file.revoke(key.id)
    assert ring.find(digest_key(text), START) is None
    with pytest.raises(NotFound, match="no key 'nothing'"):
        file.revoke("nothing")


def test_plain_keys_move_in_and_a_revoked_one_stays_revoked_beside_the_settings(file: KeyFile) -> None:
    plain = {"chosen-by-ann": ANN}
    assert [file.migrate(plain, START), file.migrate(plain, START)] == [1, 0]
    file.revoke(file.read()[0].id)
    assert KeyRing(plain, file).find(digest_key("chosen-by-ann"), START) is None


def test_a_lost_file_does_not_open_a_server_that_has_keys(file: KeyFile) -> None:
    key, _ = file.create(ANN, START)
    ring = KeyRing({}, file)
    file.path.unlink()
    assert (ring.find(key.digest, START), ring.has_keys) == (None, True)


def test_the_first_key_closes_a_server_that_started_without_one(file: KeyFile) -> None:
    ring = KeyRing({}, file)
    states = [ring.has_keys]
    file.create(ANN, START)
    states.append(ring.has_keys)
    file.path.unlink()
    assert [*states, ring.has_keys] == [False, True, True]


def _spoil(content: str) -> Callable[[KeyFile], object]:
    return lambda file: file.path.write_text(content, encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda file: file.path.chmod(0o664), r"can be written by others \(mode 664\); run chmod 600 on it"),
        (_spoil("[{]"), "restore it from a backup, or delete it and make new keys"),
        (_spoil('[{"user": "ann"}]'), r"0\.id: Field required"),
        (_spoil("{}"), "valid array"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(
    file: KeyFile, spoil: Callable[[KeyFile], object], complaint: str
) -> None:
    file.create(ANN, START)
    spoil(file)
    with pytest.raises(BadSettings, match=complaint) as caught:
        file.read()
    assert "\n" not in str(caught.value)


def test_no_key_opens_the_memory_of_a_person_behind_another(file: KeyFile) -> None:
    file.create(KeySettings(user="webui", trusted_users=True), START)
    with pytest.raises(BadInput, match="a name of the people behind the key of 'webui'"):
        file.create(KeySettings(user="webui/eva"), START)
    for user in ("", " ", "ann\nben"):
        with pytest.raises(BadInput, match="give a name"):
            file.create(KeySettings(user=user), START)
    assert len(file.read()) == 1


@pytest.mark.parametrize("count", [1, 10_000])
def test_one_comparison_finds_a_key_however_many_there_are(
    file: KeyFile, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.migrate({f"key-{number}": KeySettings(user=f"user-{number}") for number in range(count)}, START)
    ring, compared = KeyRing({}, file), Mock(wraps=hmac.compare_digest)
    monkeypatch.setattr(hmac, "compare_digest", compared)
    key = ring.find(digest_key(f"key-{count - 1}"), START)
    assert key is not None
    assert key.user == f"user-{count - 1}"
    assert ring.find(digest_key("unknown"), START) is None
    assert compared.call_count == 1
