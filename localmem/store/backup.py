"""Backups of an SQLite store while it is in use, and their way back. A kill leaves the old file or the new one, whole.

A backup is one SQLite file: all rows as they were at one moment, vectors included. Index files are not in it; they are
made again. Of an encrypted store it is encrypted with the same keys, which are in `memory.keys` and never in a backup:
a user whose key was destroyed is erased from all backups too.
"""

import os
import shutil
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from localmem.errors import BadInput, StoreError
from localmem.files import writing
from localmem.store.cipher import KEY_FILE, check_header, is_encrypted
from localmem.store.database import FILE, Database
from localmem.store.encryption import sync
from localmem.store.index_files import IndexFiles
from localmem.store.raw_files import MODE, driver_error, open_file, problems
from localmem.store.schema import SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localmem.store.encryption import Keys

_COUNTED = ("sessions", "turns", "batches", "changes")


@dataclass(frozen=True, slots=True)
class Backup:
    """A verified backup: how many rows it holds by table, and users. `aside` is where `restore` put the old store."""

    file: Path
    rows: Mapping[str, int]
    aside: Path | None = None


def back_up(place: str | Path, target: Path, keys: "Keys | None" = None) -> Backup:
    """Copy the store into `target`, which is replaced in one step once the copy is verified.

    Raises BadInput for PostgreSQL and for a target that cannot be written, StoreError for a damaged store.
    """
    if "://" not in str(place) and is_encrypted(Path(place) / FILE) is None:
        raise StoreError(f"there is no store at {Path(place) / FILE}; check the data directory")
    database = Database(place, keys)
    if not database.files:
        database.close()
        raise BadInput(f"{database.where} is not a file; back it up with pg_dump")
    draft = target.with_name(f".{target.name}.{token_hex(4)}.partial")
    with writing(target), _removed_at_last(draft):
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with database.read() as connection, open_file(draft, keys) as copy:
                driver: Any = connection.connection.driver_connection
                rows = _count(driver)
                driver.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE").fetchall()  # else it would be read with a log beside it
        except driver_error(keys) as error:
            raise StoreError(f"cannot copy {database.where} to {target} ({error}); check both disks") from error
        finally:
            database.close()
        try:
            is_complete = check_backup(draft, keys).rows == rows
        except BadInput as error:
            raise StoreError(f"{database.where} is damaged, or of a newer localmem; run `localmem doctor`") from error
        if not is_complete:
            raise StoreError(f"the copy of {database.where} is not complete; check the disk of {target}")
        sync(draft)
        draft.replace(target)
        sync(target.parent)
    return Backup(target, rows)


def check_backup(file: Path, keys: "Keys | None" = None) -> Backup:
    """Verify a backup: its pages, its references, its version. Raises BadInput."""
    if is_encrypted(file) is None:
        raise BadInput(f"there is no backup at {file}; give a file that `localmem backup` wrote")
    check_header(file, with_keys=keys is not None)
    try:
        with open_file(file, keys) as connection:
            revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]
            damage, rows = problems(connection), _count(connection)
    except driver_error(keys) as error:
        cure = f"copy the {KEY_FILE} of its store into the data directory, or give" if keys else "give"
        what = f"does not open with this {KEY_FILE}, or is damaged" if keys else "is damaged or not a backup"
        raise BadInput(f"{file} {what} ({error}); {cure} another backup") from error
    if damage:
        raise BadInput(f"{file} is damaged ({damage[0]}); give another backup")
    if not any((SCRIPTS / "versions").glob(f"{revision}_*.py")):
        raise BadInput(f"{file} was written by a newer localmem (schema {revision}); update localmem")
    return Backup(file, rows)


def restore_backup(file: Path, folder: Path, keys: "Keys | None" = None, *, replace: bool = False) -> Backup:
    """Put a verified backup in the place of the store in `folder`; with `replace` also where there is one.

    The old store stays beside it as `memory.db.replaced-N`. Raises BadInput for a damaged backup, StoreError where
    there is a store and for one in use.
    """
    backup, store = check_backup(file, keys), folder / FILE
    exists = store.exists() and store.stat().st_size > 0
    if exists and not replace:
        raise StoreError(f"{folder} has a store already; choose another --data-dir, or put it aside with --force")
    draft = folder / f".{FILE}.restored"
    with writing(store), _removed_at_last(draft):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(file, draft)
        draft.chmod(MODE)
        sync(draft)
        aside = _put_aside(store, keys) if exists else None
        draft.replace(store)
        sync(folder)
    IndexFiles(folder / "index").delete_all()
    return Backup(store, backup.rows, aside)


def _put_aside(store: Path, keys: "Keys | None") -> Path:
    """A second name for the old file, complete without a log; until it is replaced, the store has both names."""
    try:
        with open_file(store, keys) as connection:
            # Writes the log into the file and deletes it; fails while another process has the store open.
            connection.execute("PRAGMA journal_mode = DELETE").fetchall()
    except driver_error(keys) as error:
        if "locked" in str(error):
            raise StoreError(f"{store} is in use; stop the server and other commands, then try again") from error
    numbers = (number for number in range(1, 10_000) if not store.with_name(f"{FILE}.replaced-{number}").exists())
    aside = store.with_name(f"{FILE}.replaced-{next(numbers)}")
    os.link(store, aside)
    for suffix in ("-wal", "-shm", "-journal"):  # of a damaged store: another store must not be read with its log
        log = store.with_name(store.name + suffix)
        if log.exists():
            log.rename(aside.with_name(aside.name + suffix))
    return aside


def _count(connection: Any) -> dict[str, int]:  # noqa: ANN401  # of either driver
    counts = {table: f"SELECT COUNT(*) FROM {table}" for table in _COUNTED}  # noqa: S608  # our own names
    queries = {"users": "SELECT COUNT(DISTINCT user) FROM sessions", **counts}
    return {name: int(connection.execute(query).fetchone()[0]) for name, query in queries.items()}


@contextmanager
def _removed_at_last(draft: Path) -> "Iterator[None]":
    try:
        yield
    finally:
        for name in (draft.name, f"{draft.name}-journal", f"{draft.name}-wal", f"{draft.name}-shm"):
            with suppress(OSError):
                draft.with_name(name).unlink(missing_ok=True)
