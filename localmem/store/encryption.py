"""The keys of an encrypted store. A person's key opens the master key, which opens all others. Knows no database.

    the person's key --scrypt--> master key --HKDF--> key of the database file (SQLCipher), of the receipts
                                            --wraps-> one key for each user, one for all vectors

The wrapped keys are in one small file, `memory.keys`, beside the database and never in it: texts are sealed by their
user's key, so that destroying that key also ends them in every copy of the database. The cipher is AES-256-GCM. Vectors
are looked up by the digest of their text, so digests are sealed by AES-SIV, which gives equal digests equal values.

A key that does not fit is one error, a damaged file another: the file of keys tells which, before the database is read.
"""

import hmac
import os
import threading
from base64 import b64decode, b64encode
from contextlib import suppress
from hashlib import scrypt
from pathlib import Path
from typing import Literal, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from filelock import FileLock
from pydantic import BaseModel, ConfigDict

from localmem.errors import StoreError
from localmem.files import read_json, write_atomic
from localmem.store.cipher import KEY_FILE

# The cost of scrypt: 32 MB and about 0.2 s (OWASP's password storage cheat sheet: N=2^15, r=8, p=3).
_COST = {"n": 1 << 15, "r": 8, "p": 3, "maxmem": 1 << 26}

_MARK = "sealed:1:"  # begins a sealed text; then come the name of its key and the ciphertext in base64
_NAME, _NONCE = 16, 12
_DAMAGED = "restore a copy of it: without it the store cannot be read"


class _KeyFile(BaseModel):
    """`memory.keys`: all values in base64, all keys wrapped. `users` is by a name that does not disclose the user."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1] = 1
    salt: str
    master: str
    vectors: str
    users: dict[str, str] = {}


class KeyDestroyed(StoreError):
    """A text whose key is no longer there."""


class VectorKey:
    """Seals vectors and their digests. What another key has sealed opens as None: vectors can be made again."""

    def __init__(self, key: bytes) -> None:
        self._digests, self._vectors = AESSIV(key[:32]), AESGCM(key[32:])

    def seal_digest(self, digest: str) -> str:
        """Equal digests give equal values."""
        return _text(self._digests.encrypt(bytes.fromhex(digest), None))

    def open_digest(self, value: str) -> str | None:
        """The digest before `seal_digest`."""
        with suppress(InvalidTag, ValueError):
            return self._digests.decrypt(b64decode(value), None).hex()
        return None

    def seal(self, vector: bytes) -> bytes:
        """The vector and 28 bytes more."""
        nonce = os.urandom(_NONCE)
        return nonce + self._vectors.encrypt(nonce, vector, None)

    def open(self, value: bytes) -> bytes | None:
        """The vector before `seal`."""
        with suppress(InvalidTag, ValueError):
            return self._vectors.decrypt(value[:_NONCE], value[_NONCE:], None)
        return None


class Keys:
    """The unlocked keys of one store. Safe for many threads, and for processes that share the file."""

    def __init__(self, path: Path, master: bytes) -> None:
        self._path, self._master = path, master
        self._wrap = AESGCM(self.derive("wrap"))
        self._naming = self.derive("names")
        self._guard = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._users: dict[str, AESGCM] = {}
        self._vectors = VectorKey(bytes(64))

    @classmethod
    def create(cls, path: Path, secret: bytes) -> Self:
        """New keys in a new file, opened by `secret`. Raises StoreError where there is a file."""
        if path.exists():
            raise StoreError(f"{path} is there already and belongs to an encrypted store; move it away first")
        master, salt = os.urandom(32), os.urandom(16)
        keys = cls(path, master)
        vectors = _encrypt(keys._wrap, os.urandom(64), b"vectors")
        file = _KeyFile(salt=_text(salt), master=_wrap_master(master, secret, salt), vectors=vectors)
        with _lock_file(path):
            keys._write(file)
        return keys

    @classmethod
    def unlock(cls, path: Path, secret: bytes) -> Self:
        """The keys of a file. Raises StoreError for a missing or damaged file, and for a `secret` that does not fit."""
        if not path.exists():
            raise StoreError(f"the file of keys {path} is missing; {_DAMAGED}")
        with _lock_file(path):
            file = read_json(path, _KeyFile, _DAMAGED)
        try:
            master = _decrypt(AESGCM(_stretch(secret, b64decode(file.salt))), file.master, b"master")
        except (InvalidTag, ValueError) as error:
            raise StoreError(f"the key does not open {path}; give the key that the store was encrypted with") from error
        keys = cls(path, master)
        keys._load()
        return keys

    def change_secret(self, secret: bytes) -> None:
        """Open the file with `secret` from now on, in one step. What the keys have sealed stays as it is."""
        salt = os.urandom(16)
        master = _wrap_master(self._master, secret, salt)
        with _lock_file(self._path):
            self._write(self._read().model_copy(update={"salt": _text(salt), "master": master}))

    def derive(self, purpose: str) -> bytes:
        """32 bytes for one purpose."""
        return HKDF(SHA256(), 32, None, f"localmem/{purpose}".encode()).derive(self._master)

    @property
    def fingerprint(self) -> str:
        """Tells these keys from others, and nothing more."""
        return self.derive("fingerprint").hex()[:16]

    # -- texts -----------------------------------------------------------------------------------------------------

    def seal(self, user: str, text: str) -> str:
        """The text under the user's key, which is made, and on the disk, before its first use."""
        name = self._name(user)
        self._refresh()  # another process may have destroyed the key: a text under it would be lost
        return f"{_MARK}{name}{_encrypt(self._users.get(name) or self._add_user(name), text.encode(), name.encode())}"

    def open(self, text: str) -> str:
        """A text as it was before `seal`; one that is not sealed stays. Raises KeyDestroyed."""
        if not text.startswith(_MARK):
            return text
        name, content = text[len(_MARK) :][:_NAME], text[len(_MARK) + _NAME :]
        if name not in self._users:
            self._refresh()
        try:
            return _decrypt(self._users[name], content, name.encode()).decode()
        except (KeyError, InvalidTag) as error:
            raise KeyDestroyed(
                f"texts in the store have no key in {self._path}: their user was erased, or the file is older than the "
                "store; `localmem forget --all --user NAME` removes what is left of an erased user"
            ) from error

    def destroy(self, user: str) -> bool:
        """Delete the user's key: what it sealed cannot be read again, in any copy. False where there was none."""
        with _lock_file(self._path):
            file = self._read()
            if file.users.pop(self._name(user), None) is None:
                return False
            self._write(file)
        return True

    # -- vectors ---------------------------------------------------------------------------------------------------

    @property
    def vectors(self) -> VectorKey:
        """The present key of vectors."""
        self._refresh()
        return self._vectors

    def replace_vector_key(self) -> tuple[VectorKey, VectorKey]:
        """Destroy the key of vectors and return it with the new one, for those that are to be sealed again."""
        old = self.vectors
        with _lock_file(self._path):
            vectors = _encrypt(self._wrap, os.urandom(64), b"vectors")
            self._write(self._read().model_copy(update={"vectors": vectors}))
        return old, self.vectors

    # -- the file --------------------------------------------------------------------------------------------------

    def _name(self, user: str) -> str:
        return hmac.digest(self._naming, user.encode(), "sha256").hex()[:_NAME]

    def _add_user(self, name: str) -> AESGCM:
        with _lock_file(self._path):
            file = self._read()
            if name not in file.users:
                file.users[name] = _encrypt(self._wrap, AESGCM.generate_key(256), name.encode())
                self._write(file)
        self._refresh()
        return self._users[name]

    def _refresh(self) -> None:
        """Read the file again if it has changed; every change makes a new file."""
        try:
            status = self._path.stat()
        except OSError as error:
            raise StoreError(f"the file of keys {self._path} is missing; {_DAMAGED}") from error
        if (status.st_ino, status.st_mtime_ns) != self._stamp:
            self._load()

    def _load(self) -> None:
        with _lock_file(self._path), self._guard:
            status = self._path.stat()
            file = self._read()
            try:
                self._users = {
                    name: AESGCM(_decrypt(self._wrap, key, name.encode())) for name, key in file.users.items()
                }
                self._vectors = VectorKey(_decrypt(self._wrap, file.vectors, b"vectors"))
            except (InvalidTag, ValueError) as error:
                raise StoreError(f"{self._path} is damaged; {_DAMAGED}") from error
            self._stamp = status.st_ino, status.st_mtime_ns

    def _read(self) -> _KeyFile:
        return read_json(self._path, _KeyFile, _DAMAGED)

    def _write(self, file: _KeyFile) -> None:
        """Replace the file, then overwrite the bytes of the old one, which may hold a key that was destroyed."""
        old = self._path.open("r+b") if self._path.exists() else None
        write_atomic(self._path, file.model_dump_json(indent=1), mode=0o600)
        sync(self._path.parent)
        if old:
            overwrite(old.fileno())
            old.close()


def _lock_file(path: Path) -> FileLock:
    """Excludes other processes: `Keys._write` overwrites the old file, which none may be reading."""
    return FileLock(path.with_name(f".{KEY_FILE}.lock"), mode=0o600)


def overwrite(descriptor: int) -> None:
    """Write zeros over an open file, down to the disk."""
    size = os.fstat(descriptor).st_size
    for start in range(0, size, 1 << 20):
        os.pwrite(descriptor, bytes(min(1 << 20, size - start)), start)
    os.fsync(descriptor)


def sync(path: Path) -> None:
    """Make a file durable, or the renames in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _stretch(secret: bytes, salt: bytes) -> bytes:
    return scrypt(secret, salt=salt, dklen=32, **_COST)


def _wrap_master(master: bytes, secret: bytes, salt: bytes) -> str:
    return _encrypt(AESGCM(_stretch(secret, salt)), master, b"master")


def _encrypt(cipher: AESGCM, content: bytes, purpose: bytes) -> str:
    nonce = os.urandom(_NONCE)
    return _text(nonce + cipher.encrypt(nonce, content, purpose))


def _decrypt(cipher: AESGCM, text: str, purpose: bytes) -> bytes:
    content = b64decode(text)
    return cipher.decrypt(content[:_NONCE], content[_NONCE:], purpose)


def _text(content: bytes) -> str:
    return b64encode(content).decode()
