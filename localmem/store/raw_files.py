"""SQLite files as they are: connections of the driver, for copies and repairs. Does not know the tables.

An encrypted file is opened with its keys and read with its texts sealed, so nothing is ever written in clear.
"""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localmem.store.cipher import key_literal, load_driver

if TYPE_CHECKING:
    from localmem.store.encryption import Keys

MODE = 0o600  # of every file: it contains private conversations


@contextmanager
def open_file(file: Path, keys: "Keys | None") -> Iterator[Any]:
    """A connection without a transaction; the file is created if missing."""
    file.touch(mode=MODE)
    driver = load_driver() if keys else sqlite3
    with closing(driver.connect(str(file), timeout=1, isolation_level=None)) as connection:
        if keys:
            connection.execute(f"PRAGMA key = {key_literal(keys.derive('database'))}")
            connection.execute("PRAGMA cipher_log_level = NONE")  # it would print lines of its own for what is raised
        yield connection


def driver_error(keys: "Keys | None") -> type[Exception]:
    """What the driver of the file raises."""
    error: type[Exception] = load_driver().Error if keys else sqlite3.Error
    return error


def copy_file(source: Path, target: Path) -> None:
    """The file and its write-ahead log, which may hold the last turns; nothing is opened."""
    for suffix in ("", "-wal"):
        file = source.with_name(source.name + suffix)
        if file.exists():
            shutil.copyfile(file, target.with_name(target.name + suffix))
            target.with_name(target.name + suffix).chmod(MODE)


def problems(connection: Any) -> list[str]:  # noqa: ANN401  # of either driver
    """What the file's own check finds."""
    damage = [str(row[0]) for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
    dangling = connection.execute("PRAGMA foreign_key_check").fetchall()
    return damage + [f"a row of {row[0]} refers to a missing row of {row[2]}" for row in dangling]
