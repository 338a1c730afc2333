"""The files of indexes, a folder for each user: derived data that holds vectors, so an erasure drops it.

Knows where they lie and what they are called; retrievers write and read them.
"""

import logging
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

log = logging.getLogger(__name__)


class IndexFiles:
    """Under `folder`; without one there are no files and every index lives in memory alone."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def file(self, user: str, system: str, identity: str) -> Path | None:
        """Where the index of one user's bank may be kept. Files of two encoders have two names."""
        return self._of(user) / f"{system}-{_name(identity)[:16]}.index" if self._folder else None

    def forget(self, user: str) -> int:
        """Drop the user's files. Returns how many there were; one that cannot go is logged, and stays in `paths`."""
        return _drop(self._of(user)) if self._folder else 0

    def forget_all(self) -> int:
        """Drop everyone's files: all can be made again."""
        return _drop(self._folder) if self._folder else 0

    def of(self, user: str) -> list[Path]:
        """The user's files."""
        return list(_files(self._of(user))) if self._folder else []

    def paths(self) -> list[Path]:
        """Everyone's files."""
        return list(_files(self._folder)) if self._folder else []

    def _of(self, user: str) -> Path:
        return (self._folder or Path()) / _name(user)[:32]


def _name(text: str) -> str:
    """A name that any file system takes and that tells nobody who the user is."""
    return sha256(text.encode()).hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _drop(folder: Path) -> int:
    found = len(list(_files(folder)))
    if folder.exists():
        shutil.rmtree(folder, onerror=_told)
    return found - len(list(_files(folder)))


def _told(_function: object, path: str, error: object) -> None:
    log.warning("the index file %s cannot be erased: %s", path, error)
