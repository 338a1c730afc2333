"""DigestFiles: which texts a user's set holds, with nothing but keyed digests on the disk. Knows no use of the sets.

One file for each user, which only grows until it is full; processes that share the folder read what the others append.
The keys of an encrypted store make the key of the digests. In a plain store it is a file beside them: the digests still
tell nothing by themselves, but who has both can test what they guess.
"""

import errno
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import NamedTuple

from localmem.errors import StoreError
from localmem.files import write_atomic
from localmem.store.encryption import Keys

FOLDER = "unlogged"  # in the data directory
_SIZE = 16  # bytes of a digest
_MOST = 100_000  # texts of a user; of twice as many the older half is dropped
_USERS = 1000  # whose digests are in memory


class _Content(NamedTuple):
    """What was read of a file: when it was changed, how it begins, how much was read, and its digests."""

    changed: int
    first: bytes
    size: int
    digests: set[bytes]


class DigestFiles:
    """The files in `folder`, for many threads and processes; without a folder every set is empty."""

    def __init__(self, folder: Path | None, keys: Keys | None) -> None:
        self._folder = folder
        self._own_key = keys.derive("digests") if keys else b""
        self._contents: dict[Path, _Content] = {}
        self._lock = threading.Lock()

    def add(self, user: str, *texts: str) -> None:
        """Texts of the user's set, durable on return. Raises StoreError."""
        if not (self._folder and texts):
            return
        with self._lock, _writing(self._folder):
            self._own_key = self._own_key or _read_key(self._folder) or _make_key(self._folder)
            path = self._path(user, self._own_key)
            digests = self._read(path)
            new = dict.fromkeys(digest for text in texts if (digest := digest_text(text, self._own_key)) not in digests)
            if new:
                _append(path, b"".join(new))
            if len(digests) + len(new) >= 2 * _MOST:
                write_atomic(path, path.read_bytes()[-_MOST * _SIZE :], mode=0o600)

    def find(self, user: str, texts: Iterable[str]) -> set[str]:
        """Those of the texts that were added to the user's set."""
        digests = self._digests(user)  # which reads the key
        return {text for text in texts if digest_text(text, self._own_key) in digests} if digests else set()

    def count(self, user: str) -> int:
        """The number of texts in the user's set."""
        return len(self._digests(user))

    def _digests(self, user: str) -> set[bytes]:
        if not self._folder:
            return set()
        with self._lock:
            self._own_key = self._own_key or _read_key(self._folder)
            return self._read(self._path(user, self._own_key)) if self._own_key else set()

    def _path(self, user: str, key: bytes) -> Path:
        return (self._folder or Path()) / digest_text(user, key).hex()

    def _read(self, path: Path) -> set[bytes]:
        """The digests of a file, of which only what is new since the last time is read."""
        try:
            status = path.stat()
        except FileNotFoundError:
            self._contents.pop(path, None)
            return set()
        content = self._contents.get(path)
        if content and (content.changed, content.size) == (status.st_mtime_ns, status.st_size):
            return content.digests
        with path.open("rb") as file:
            first = file.read(_SIZE)
            if content is None or first != content.first or content.size > status.st_size:  # it is another file
                content = _Content(0, first, 0, set())
            file.seek(content.size)
            new = file.read((status.st_size - content.size) // _SIZE * _SIZE)
        content.digests.update(new[start : start + _SIZE] for start in range(0, len(new), _SIZE))
        if len(self._contents) >= _USERS:
            self._contents.clear()
        self._contents[path] = content._replace(changed=status.st_mtime_ns, size=content.size + len(new))
        return content.digests


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"the disk that holds {folder} is full; free some space, then try again") from error
        raise StoreError(f"cannot write in {folder} ({error.strerror or error}); check the disk") from error


def digest_text(text: str, key: bytes) -> bytes:
    """The keyed digest of a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), key=key, digest_size=_SIZE).digest()


def _append(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        torn = os.fstat(descriptor).st_size % _SIZE  # by a crash or a full disk
        file.write(bytes(-torn % _SIZE) + content)
        file.flush()
        os.fsync(descriptor)


def _read_key(folder: Path) -> bytes:
    """The key in the folder; empty where there is none."""
    try:
        return (folder / "key").read_bytes()
    except FileNotFoundError:
        return b""


def _make_key(folder: Path) -> bytes:
    """A new key, or that of a process which made one at the same time."""
    draft = folder / f".key.{token_hex(4)}"
    _append(draft, token_bytes(32))
    with suppress(FileExistsError):
        os.link(draft, folder / "key")
    draft.unlink()
    return _read_key(folder)
