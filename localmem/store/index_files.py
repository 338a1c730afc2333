"""IndexFiles: the files of indexes, one folder for each user. Does not depend on what is in them."""

import logging
import shutil
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

log = logging.getLogger(__name__)


class IndexFiles:
    """The index files under `folder`, one folder for each user; without `folder`, every index is in memory only.

    They are derived data that contains vectors, so an erasure deletes them. Retrievers write and read them.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def path(self, user: str, system: str, identity: str) -> Path | None:
        """The file for the index of one bank under one encoder."""
        return self._user_folder(user) / f"{system}-{_hash_name(identity)[:16]}.index" if self._folder else None

    def delete(self, user: str) -> int:
        """Delete the user's files and return their number. A file that cannot be deleted is logged and stays."""
        return _delete(self._user_folder(user)) if self._folder else 0

    def delete_all(self) -> int:
        """Delete the files of all users; they can be rebuilt."""
        return _delete(self._folder) if self._folder else 0

    def user_files(self, user: str) -> list[Path]:
        """The user's files."""
        return list(_files(self._user_folder(user))) if self._folder else []

    def all_files(self) -> list[Path]:
        """The files of all users."""
        return list(_files(self._folder)) if self._folder else []

    def _user_folder(self, user: str) -> Path:
        return (self._folder or Path()) / _hash_name(user)[:32]


def _hash_name(text: str) -> str:
    """A name that is valid on any file system and does not disclose the user."""
    return sha256(text.encode()).hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _delete(folder: Path) -> int:
    count = len(list(_files(folder)))
    if folder.exists():
        message = "the index file %s cannot be deleted: %s"
        shutil.rmtree(folder, onerror=lambda _, path, error: log.warning(message, path, error))
    return count - len(list(_files(folder)))
