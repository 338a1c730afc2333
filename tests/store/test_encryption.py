"""Encryption: nothing readable on the disk, no fallback, and keys that end what they sealed when they are destroyed."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from localmem.config import Settings, load_settings
from localmem.errors import BadInput, BadSettings, LocalmemError, StoreError
from localmem.retrieval.base import passage_digest
from localmem.store import Store, encryption
from localmem.store.backup import back_up, restore_backup
from localmem.store.conversion import convert
from localmem.store.digest_files import FOLDER, DigestFiles
from localmem.store.encryption import KeyDestroyed, Keys
from localmem.store.key_source import read_secret
from localmem.store.opening import open_store, settings_keys
from localmem.types import SetNote
from tests.postgres_server import PostgresServer
from tests.store.lives import START, add_unit, make_turns, remember

CANARY = "the canary sings behind the third flowerpot"
SPEAKER = "Wilhelmina Canary"
VECTOR = bytes(range(200, 216)) * 4


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def _quick_stretching(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretching a key costs a quarter of a second on purpose; one test pays it."""
    monkeypatch.setitem(encryption._COST, "n", 1 << 4)


@pytest.fixture
def keys(home: Path) -> Keys:
    home.mkdir()
    return Keys.create(home / "memory.keys", b"correct horse")


@pytest.fixture
def store(home: Path, keys: Keys) -> Iterator[Store]:
    with Store.open(home, keys=keys) as opened:
        yield opened
        assert opened.problems() == []


def _fill(store: Store, user: str = "ann") -> None:
    remember(store, user, "rsum", "s1", [add_unit("u1", text=CANARY), SetNote("summary", CANARY, START)], CANARY, "Yes")
    remember(store, user, "rsum", "s2", [add_unit("u2", "s2", text=f"More of it: {CANARY}")], "Go on")
    store.embeddings.put("ones@1", {passage_digest(CANARY): VECTOR})


def _readable(home: Path) -> list[str]:
    """The files of the home in which something of the store can be read, with those of SQLite while it is open."""
    traces = (b"canary", b"flowerpot", VECTOR[:16], passage_digest(CANARY).encode(), b"SQLite format", b"rsum")
    files = [file for file in home.rglob("*") if file.is_file()]
    return [f"{file.name}: {trace!r}" for file in files for trace in traces if trace in file.read_bytes()]


def test_nothing_on_the_disk_can_be_read_without_the_key(store: Store, home: Path) -> None:
    _fill(store)
    assert (home / "memory.db-wal").stat().st_size > 0
    assert _readable(home) == []
    assert store.indexes.path("ann", "rsum", "ones@1") is None, "indexes are in memory only"
    assert store.bank("ann", "rsum").units["u1"].text == CANARY
    assert store.embeddings.get("ones@1", [passage_digest(CANARY)]) == {passage_digest(CANARY): VECTOR}
    assert store.embeddings.all_digests() == {passage_digest(CANARY)}
    assert store.replies_with("ann", ["Yes"]) == ["s1.1"]


def test_rows_are_sealed_inside_the_encrypted_file_too(store: Store) -> None:
    _fill(store)
    _assert_sealed(store)


def _assert_sealed(store: Store) -> None:
    query = "SELECT text, speaker FROM turns UNION ALL SELECT body, body FROM changes"
    with store._database.read() as connection:
        rows = connection.exec_driver_sql(query).all()
    assert rows
    assert all(value.startswith("sealed:1:") for row in rows for value in row)


def test_an_export_of_an_encrypted_store_is_that_of_a_plain_one(store: Store, tmp_path: Path) -> None:
    _fill(store)
    lines = list(store.export("ann"))
    with Store.open(tmp_path / "plain") as plain:
        plain.restore(lines, "export")
        assert list(plain.export("ann")) == lines
    store.restore(lines, "export", "bob")
    assert store.bank("bob", "rsum") == store.bank("ann", "rsum")


def test_a_repeated_turn_is_the_same_turn(store: Store) -> None:
    for _ in range(2):
        store.journal("ann", "rsum").add_turns("s1", make_turns("s1", CANARY))
    assert len(store.session("ann", "s1").turns) == 1


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_wrong_key_and_a_damaged_file_are_told_apart(home: Path, keys: Keys) -> None:
    Store.open(home, keys=keys).close()
    with pytest.raises(StoreError, match=r"the key does not open .*memory.keys; give the key"):
        Keys.unlock(home / "memory.keys", b"wrong horse")
    (home / "memory.db").write_bytes(b"x" + (home / "memory.db").read_bytes()[1:])
    with pytest.raises(StoreError, match=r"is not a localmem store|is damaged"):
        Store.open(home, keys=Keys.unlock(home / "memory.keys", b"correct horse"))
    (home / "memory.keys").write_text("{}")
    with pytest.raises(LocalmemError, match=r"memory.keys.*restore a copy of it"):
        Keys.unlock(home / "memory.keys", b"correct horse")
    (home / "memory.keys").unlink()
    with pytest.raises(StoreError, match="is missing; restore a copy of it"):
        Keys.unlock(home / "memory.keys", b"correct horse")


def test_another_key_opens_the_store_after_a_change_and_the_old_one_does_not(home: Path, keys: Keys) -> None:
    with Store.open(home, keys=keys) as store:
        _fill(store)
    keys.change_secret(b"battery staple")
    with Store.open(home, keys=Keys.unlock(home / "memory.keys", b"battery staple")) as store:
        assert store.session("ann", "s1").turns[0].text == CANARY
    with pytest.raises(StoreError, match="does not open"):
        Keys.unlock(home / "memory.keys", b"correct horse")


def test_erasing_a_user_ends_every_copy_of_the_database(keys: Keys, home: Path, tmp_path: Path) -> None:
    store = Store.open(home, keys=keys)
    for user in ("ann", "bob"):
        _fill(store, user)
    store._database.checkpoint()
    backup = shutil.copy(home / "memory.db", tmp_path / "backup.db")
    elsewhere = Keys.unlock(home / "memory.keys", b"correct horse")  # another process, which has read the keys before
    sealed = elsewhere.seal("ann", CANARY)
    receipt = store.delete_user("ann")
    assert receipt.rows["keys"] == 1
    assert receipt.remaining == 0
    assert elsewhere.seal("bob", CANARY)  # which looks at the keys again
    with pytest.raises(KeyDestroyed):
        elsewhere.open(sealed)
    bob = list(store.export("bob"))
    store.close()
    for name in ("memory.db-wal", "memory.db-shm"):
        (home / name).unlink(missing_ok=True)
    shutil.copy(backup, home / "memory.db")
    with Store.open(home, keys=Keys.unlock(home / "memory.keys", b"correct horse")) as restored:
        with pytest.raises(KeyDestroyed, match="their user was erased"):
            restored.session("ann", "s1")
        assert restored.embeddings.all_digests() == set(), "nor can a vector be read, or looked for"
        assert list(restored.export("bob")) == bob
        assert restored.delete_user("ann").rows["turns"] == 3, "what is left of the user can be removed"
        assert restored.users() == ["bob"]


def test_vectors_of_others_stay_when_a_user_is_erased(store: Store) -> None:
    remember(store, "ann", "rsum", "s1", [add_unit("u1", text=CANARY)], CANARY)
    remember(store, "bob", "rsum", "s1", [add_unit("u1", text="Nothing of that")], "Nothing")
    digests = [passage_digest("key: Nothing of that"), passage_digest(CANARY)]
    store.embeddings.put("ones@1", dict.fromkeys(digests, VECTOR))
    store.delete_user("ann")
    assert store.embeddings.get("ones@1", digests) == {digests[0]: VECTOR}


def test_a_user_who_comes_back_has_a_new_key(store: Store) -> None:
    _fill(store)
    with store._database.read() as connection:
        old = connection.exec_driver_sql("SELECT text FROM turns").scalars().all()[0]
    store.delete_user("ann")
    _fill(store)
    assert store.session("ann", "s1").turns[0].text == CANARY
    assert store._database.keys
    with pytest.raises(KeyDestroyed):
        store._database.keys.open(old)


def test_a_user_who_wrote_again_after_a_cut_off_erasure_can_be_erased(store: Store) -> None:
    """A crash between the end of the key and the commit leaves rows that nobody can read."""
    _fill(store)
    assert store._database.keys
    store._database.keys.destroy("ann")
    store.journal("ann", "rsum").add_turns("s9", make_turns("s9", CANARY))
    assert store.delete_user("ann").remaining == 0
    assert store.users() == []


# -- conversion --------------------------------------------------------------------------------------------------------


def test_a_plain_store_is_encrypted_and_decrypted_without_loss(home: Path, keys: Keys) -> None:
    with Store.open(home) as plain:
        _fill(plain)
        lines = list(plain.export("ann"))
        version = plain.version("ann", "rsum")
    (home / "index").mkdir()
    (home / "index" / "vectors").write_bytes(VECTOR)
    (home / "chat_history").write_text(CANARY)
    DigestFiles(home / FOLDER, None).add("ann", CANARY)
    assert convert(home, home, keys, encrypt=True)
    assert _readable(home) == []
    assert not (home / FOLDER).exists()
    assert not convert(home, home, keys, encrypt=True), "a second time it changes nothing"
    with Store.open(home, keys=keys) as encrypted:
        assert list(encrypted.export("ann")) == lines
        assert encrypted.version("ann", "rsum") == version
        assert encrypted.embeddings.all_digests() == {passage_digest(CANARY)}
        assert encrypted.problems() == []
    assert convert(home, home, keys, encrypt=False)
    with Store.open(home) as plain:
        assert list(plain.export("ann")) == lines
        assert plain.embeddings.get("ones@1", [passage_digest(CANARY)]) == {passage_digest(CANARY): VECTOR}


def test_a_store_in_use_is_not_converted(home: Path, keys: Keys) -> None:
    with Store.open(home) as plain:
        _fill(plain)
    code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT 1 FROM turns').fetchall()"
    arguments = [sys.executable, "-c", f"{code}; print(flush=True); input()", str(home / "memory.db")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin
        assert other.stdout
        other.stdout.readline()
        with pytest.raises(StoreError, match=r"is in use .*; stop the server"):
            convert(home, home, keys, encrypt=True)
        other.stdin.write("\n")
    with Store.open(home) as plain:
        assert plain.session("ann", "s1").turns[0].text == CANARY


_KILLED = """
import os, signal, sys
from pathlib import Path
from localmem.store import conversion, encryption
encryption._COST["n"] = 1 << 4
from localmem.store.encryption import Keys
home, name, encrypt = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "encrypt"
def kill():
    os.kill(os.getpid(), signal.SIGKILL)
replace = Path.replace
def replace_and_kill(self, target):
    if name == "before" and self.name.endswith(".converted"):
        kill()
    replace(self, target)
    if name == "after" and self.name.endswith(".converted"):
        kill()
Path.replace = replace_and_kill
if name == "rewrite":
    conversion._rewrite = lambda *_, **__: kill()
conversion.convert(home, home, Keys.unlock(home / "memory.keys", b"correct horse"), encrypt=encrypt)
"""


@pytest.mark.parametrize("direction", ["encrypt", "decrypt"])
@pytest.mark.parametrize("moment", ["rewrite", "before", "after"])
def test_a_killed_conversion_loses_nothing(home: Path, keys: Keys, direction: str, moment: str) -> None:
    with Store.open(home, keys=keys if direction == "decrypt" else None) as store:
        _fill(store)
        lines = list(store.export("ann"))
    arguments = [sys.executable, "-c", _KILLED, str(home), moment, direction]
    assert subprocess.run(arguments, check=False, env={**os.environ, "PYTHONPATH": "."}).returncode == -signal.SIGKILL
    convert(home, home, keys, encrypt=direction == "encrypt")
    with Store.open(home, keys=keys if direction == "encrypt" else None) as store:
        assert list(store.export("ann")) == lines
    if direction == "encrypt":
        assert _readable(home) == []
    assert {file.name for file in home.iterdir()} <= {"memory.db", "memory.keys", ".memory.keys.lock"}


@pytest.mark.slow
def test_postgresql_is_sealed_and_opened(request: pytest.FixtureRequest, home: Path, keys: Keys) -> None:
    with request.getfixturevalue("postgres").new_database() as url:
        with Store.open(url) as plain:
            _fill(plain)
            lines = list(plain.export("ann"))
        with pytest.raises(StoreError, match=r"is not encrypted and store\.encryption is on"):
            Store.open(url, keys=keys)
        assert convert(url, home, keys, encrypt=True)
        assert not convert(url, home, keys, encrypt=True)
        with pytest.raises(StoreError, match=r"is encrypted and store\.encryption is off"):
            Store.open(url)
        with pytest.raises(StoreError, match="was encrypted with other keys"):
            Store.open(url, keys=Keys.create(home / "other", b"battery staple"))
        with Store.open(url, keys=keys) as sealed:
            assert list(sealed.export("ann")) == lines
            _assert_sealed(sealed)
            assert sealed.embeddings.all_digests() == {passage_digest(CANARY)}
            _fill(sealed, "bob")
            assert sealed.delete_user("bob").rows["keys"] == 1
        assert convert(url, home, keys, encrypt=False)
        with Store.open(url) as plain:
            assert list(plain.export("ann")) == lines


@pytest.mark.slow
def test_an_erased_user_is_in_no_dump_and_dies_in_an_earlier_one(
    postgres: PostgresServer, home: Path, keys: Keys
) -> None:
    def dump(place: str) -> str:
        return postgres.run("pg_dump", "--no-owner", str(make_url(place).database))

    with postgres.new_database() as url, Store.open(url, keys=keys) as store:
        for user in ("ann", "bob"):
            _fill(store, user)
        earlier, bob = dump(url), list(store.export("bob"))
        receipt = store.delete_user("ann")
        assert (receipt.rows["keys"], receipt.remaining) == (1, None), "files of a server are not searched"
        later = dump(url)
    assert "bob" in later
    assert not [trace for trace in ("canary", "flowerpot", VECTOR.hex()) if trace in (earlier + later).lower()]
    assert "ann" not in later
    with postgres.new_database() as other:
        postgres.run("psql", "--quiet", "--set", "ON_ERROR_STOP=1", str(make_url(other).database), stdin=earlier)
        with Store.open(other, keys=Keys.unlock(home / "memory.keys", b"correct horse")) as restored:
            with pytest.raises(KeyDestroyed, match="their user was erased"):
                restored.session("ann", "s1")
            assert restored.embeddings.all_digests() == set()
            assert list(restored.export("bob")) == bob


# -- settings ----------------------------------------------------------------------------------------------------------


def _settings(home: Path, **store: object) -> Settings:
    return load_settings(None, {"data": home, "store": store})


def test_a_backup_opens_with_the_keys_of_its_store_alone(
    home: Path, keys: Keys, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Store.open(home, keys=keys) as store:
        _fill(store, "ann")
    back_up(home, tmp_path / "backup.db", keys)
    other = tmp_path / "other"
    (secret := tmp_path / "key").write_text("correct horse")
    with pytest.raises(StoreError, match=r"memory.keys is missing"):
        settings_keys(_settings(other, encryption=True, key=f"file:{secret}"), may_create=False)
    assert not (other / "memory.keys").exists()
    with pytest.raises(BadInput, match=r"does not open with this memory.keys.*copy the memory.keys of its store"):
        restore_backup(tmp_path / "backup.db", other, Keys.create(tmp_path / "memory.keys", b"correct horse"))
    assert capfd.readouterr().err == ""


def test_settings_open_the_store_and_never_fall_back(home: Path, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("correct horse\n")
    source = f"file:{key}"
    with open_store(_settings(home, encryption=True, key=source)) as store:
        _fill(store)
    with open_store(_settings(home, encryption=True, key=source)) as store:
        assert store.users() == ["ann"]
    assert _readable(home) == []
    for wrong, message in (
        ({}, "is encrypted and store.encryption is off; set store.encryption"),
        ({"key": source}, "store.key is set and store.encryption is off"),
        ({"encryption": True}, "store.encryption is on and store.key is not set; give prompt, keyring or file:PATH"),
        ({"encryption": True, "key": "file:/nowhere"}, "cannot read /nowhere"),
        ({"encryption": True, "key": "prompt"}, "there is no terminal to ask at"),
    ):
        with pytest.raises(LocalmemError, match=message):
            open_store(_settings(home, **wrong))
    with pytest.raises(BadSettings, match="give the source of the key and not the key"):
        _settings(home, encryption=True, key="correct horse")
    key.write_text("short")
    with pytest.raises(BadSettings, match="has 5 characters; use 8 or more"):
        open_store(_settings(home, encryption=True, key=source))


def test_a_plain_store_is_not_opened_where_encryption_is_on(home: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("correct horse")
    Store.open(home).close()
    with pytest.raises(StoreError, match=r"is not encrypted and store.encryption is on; run `localmem store encrypt`"):
        open_store(_settings(home, encryption=True, key=f"file:{tmp_path / 'key'}"))
    assert not (home / "memory.keys").exists()


def test_a_keyring_gets_a_random_key_for_a_new_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring

    ring: dict[tuple[str, str], str] = {}
    monkeypatch.setattr(keyring, "get_password", lambda service, name: ring.get((service, name)))
    monkeypatch.setattr(keyring, "set_password", lambda service, name, key: ring.update({(service, name): key}))
    with pytest.raises(BadSettings, match="the keyring has no key"):
        read_secret("keyring", home)
    with open_store(_settings(home, encryption=True, key="keyring")) as store:
        _fill(store)
    assert [len(key) > 40 for key in ring.values()] == [True]
    with open_store(_settings(home, encryption=True, key="keyring")) as store:
        assert store.users() == ["ann"]
