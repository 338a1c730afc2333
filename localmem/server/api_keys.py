"""API keys: the file that holds their digests, and finding the record of a key.

`keys.json` in the data directory names each key by an id and holds the SHA-256 digest of its text, whose it is, what it
may do and until when; the text is shown once, when the key is made. A fast digest is right here, unlike for passwords:
a key has 256 random bits, so nobody can try all texts, however fast. Keys in the settings (`server.keys`) are plain
text and may be guessable; `localmem keys migrate` moves them. Does not depend on HTTP.
"""

import hmac
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from secrets import token_hex, token_urlsafe

from filelock import FileLock
from pydantic import AwareDatetime, TypeAdapter

from localmem.config import Settings
from localmem.errors import BadInput, BadSettings, NotFound
from localmem.files import read_json, write_atomic
from localmem.settings_sections import KeySettings

_MIN_KEY_LENGTH = 8
_PREFIX = "localmem-"  # lets a scanner for leaked secrets recognise a key
_INDEXED = 16  # characters of a digest that find it; the others are compared in constant time
_OTHERS_WRITE = 0o022
_CURE = "restore it from a backup, or delete it and make new keys with `localmem keys create`"


class ApiKey(KeySettings):
    """A key of the file; `digest` is that of its text."""

    id: str
    digest: str
    created: AwareDatetime
    expires: AwareDatetime | None = None
    revoked: bool = False

    def state(self, now: datetime) -> str:
        """`valid`, `expired` or `revoked`."""
        if self.revoked:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "valid"


_KEYS: TypeAdapter[list[ApiKey]] = TypeAdapter(list[ApiKey])


def digest_key(text: str) -> str:
    """The digest by which a key is found."""
    return sha256(text.encode()).hexdigest()


def plain_keys(settings: Settings) -> dict[str, KeySettings]:
    """The rights of each key of the settings, by its text."""
    keys = settings.server.keys.items()
    return {text: key if isinstance(key, KeySettings) else KeySettings(user=key) for text, key in keys}


def check_keys(settings: Settings) -> bool:
    """Whether there are keys, in the settings or the file. Raises BadSettings for unusable ones."""
    plain, stored = plain_keys(settings), KeyFile(settings.key_file).read()
    for text, key in plain.items():
        if len(text) < _MIN_KEY_LENGTH or not key.user:
            raise BadSettings(
                f"server.keys has a key of {len(text)} characters for user {key.user!r}; "
                f"use keys of at least {_MIN_KEY_LENGTH} characters, each with a user"
            )
    _check_users([*plain.values(), *stored])
    return bool(plain or stored)


class KeyFile:
    """The file with the keys, which commands change while a server reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[ApiKey]:
        """All keys, revoked ones too; none without a file. Raises BadSettings for a file that cannot be trusted."""
        if not self.path.exists():
            return []
        mode = self.path.stat().st_mode
        if mode & _OTHERS_WRITE:
            raise BadSettings(f"{self.path} can be written by others (mode {mode & 0o777:o}); run chmod 600 on it")
        try:
            keys = read_json(self.path, _KEYS, _CURE)
        except BadInput as error:
            raise BadSettings(str(error)) from error
        _check_users(keys)
        return keys

    def version(self) -> tuple[int, int] | None:
        """Changes with the file's content, which is always replaced as a whole; None without a file."""
        try:
            status = os.stat(self.path)  # noqa: PTH116  # called for each request
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def create(self, rights: KeySettings, now: datetime, *, days: float | None = None) -> tuple[ApiKey, str]:
        """A new key and its text, which is stored nowhere. Raises BadInput for a user that no key can have."""
        if not rights.user.strip() or any(character < " " for character in rights.user):
            raise BadInput(f"the key's user is {rights.user!r}; give a name, without line ends")
        text = _PREFIX + token_urlsafe(32)
        expires = now + timedelta(days=days) if days is not None else None
        key = _record(text, rights, now, expires)
        self._change(lambda keys: [*keys, key])
        return key, text

    def revoke(self, key_id: str) -> None:
        """End a key at once. Raises NotFound."""
        self._change(lambda keys: _replace(keys, key_id, revoked=True))

    def rotate(self, key_id: str, now: datetime, *, days: float) -> tuple[ApiKey, str]:
        """A new key with the rights of a valid one, which ends in `days`, and its text. Raises NotFound, BadInput."""
        own = [key for key in self.read() if key.id == key_id]
        if own and own[0].state(now) != "valid":
            raise BadInput(f"key {key_id} is {own[0].state(now)}; make a new one with `localmem keys create`")
        end = now + timedelta(days=days)
        end = min(end, own[0].expires or end) if own else end
        text = _PREFIX + token_urlsafe(32)

        def change(keys: list[ApiKey]) -> list[ApiKey]:
            remaining = _replace(keys, key_id, expires=end)
            return [*remaining, _record(text, own[0], now, None)]

        return self._change(change)[-1], text

    def migrate(self, plain: Mapping[str, KeySettings], now: datetime) -> int:
        """Store the digests of keys of the settings; returns how many were new. A revoked key stays revoked."""
        before = len(self.read())

        def change(keys: list[ApiKey]) -> list[ApiKey]:
            digests = {key.digest for key in keys}
            new = (_record(text, key, now, None) for text, key in plain.items() if digest_key(text) not in digests)
            return [*keys, *new]

        return len(self._change(change)) - before

    def _change(self, change: Callable[[list[ApiKey]], list[ApiKey]]) -> list[ApiKey]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(self.path.with_name(f".{self.path.name}.lock")):
            keys = change(self.read())
            try:
                _check_users(keys)
            except BadSettings as error:
                raise BadInput(str(error)) from error
            write_atomic(self.path, _KEYS.dump_json(keys, indent=1), mode=0o600)
        return keys


class KeyRing:
    """Finds keys by their digest in constant time, however many there are; rereads the file when it changed."""

    def __init__(self, plain: Mapping[str, KeySettings], file: KeyFile | None = None) -> None:
        self._file = file
        self._plain = {digest_key(text): key for text, key in plain.items()}
        self._keys: dict[str, tuple[str, KeySettings]] = {}  # by the beginning of the digest: the digest, the rights
        self._version: tuple[int, int] | None = None
        self._has_keys = False
        self._lock = threading.Lock()
        self._reread()

    @property
    def has_keys(self) -> bool:
        """Whether there are keys, or were: a file that is lost must not open the server. Raises BadSettings."""
        if not self._has_keys:
            self._follow()
        return self._has_keys

    def find(self, digest: str, now: datetime) -> KeySettings | None:
        """The rights of a valid key. Raises BadSettings for a file that has become unusable."""
        self._follow()
        full_digest, key = self._keys.get(digest[:_INDEXED], ("", None))
        if key is None or not hmac.compare_digest(full_digest, digest):
            return None
        return None if isinstance(key, ApiKey) and key.state(now) != "valid" else key

    def _follow(self) -> None:
        if self._file and self._file.version() != self._version:
            self._reread()

    def _reread(self) -> None:
        with self._lock:
            version = self._file.version() if self._file else None
            keys = {**self._plain, **{key.digest: key for key in (self._file.read() if self._file else ())}}
            self._keys = {digest[:_INDEXED]: (digest, key) for digest, key in keys.items()}
            self._has_keys = self._has_keys or bool(keys)
            self._version = version


def _record(text: str, rights: KeySettings, now: datetime, expires: datetime | None) -> ApiKey:
    values = {name: getattr(rights, name) for name in KeySettings.model_fields}
    return ApiKey(**values, id=token_hex(4), digest=digest_key(text), created=now, expires=expires)


def _replace(keys: list[ApiKey], key_id: str, **values: object) -> list[ApiKey]:
    if key_id not in [key.id for key in keys]:
        raise NotFound(f"there is no key {key_id!r}; `localmem keys list` shows them")
    return [key.model_copy(update=values) if key.id == key_id else key for key in keys]


def _check_users(keys: Sequence[KeySettings]) -> None:
    """Raises BadSettings where a key's user is a person behind a key of several people."""
    users = {key.user: key for key in keys}
    shared = {key.user for key in keys if key.trusted_users}
    for user in users:
        parts = user.split("/")
        owners = [name for end in range(1, len(parts)) if (name := "/".join(parts[:end])) in shared]
        if owners:
            raise BadSettings(
                f"server.keys has the user {user!r}, a name of the people behind the key of {owners[0]!r}; "
                "rename either"
            )
