"""The data directory: made, migrated, refused; and each trouble with a disk is one clear line."""

import errno
import os
import sqlite3
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event

from localmem.errors import BadInput, MissingExtra, NewerStore, StoreError
from localmem.store import Store
from localmem.store.database import Database
from localmem.store.schema import REVISION, SCRIPTS, metadata, migrate
from tests.store.lives import add_unit, make_turns, remember


def test_the_migrations_end_in_the_schema(place: str) -> None:
    assert ScriptDirectory(str(SCRIPTS)).get_current_head() == REVISION
    database = Database(place)
    migrate(database)
    migrate(database)
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    database.close()


def test_what_was_written_is_there_when_it_is_opened_again(place: str) -> None:
    with Store.open(place) as store:
        remember(store, "ann", "rsum", "s1", [add_unit("u1")])
        lines = list(store.export("ann"))
    with Store.open(place) as store:
        assert list(store.export("ann")) == lines


def test_the_directory_is_made_for_its_owner_only(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "data"
    with Store.open(place) as store:
        assert store.where == str(place / "memory.db")
        remember(store, "ann", "rsum", "s1", [add_unit("u1")])
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in place.glob("*")}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert modes == {"memory.db": 0o600, "memory.db-wal": 0o600, "memory.db-shm": 0o600}


def test_it_is_safe_against_a_loss_of_power(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with database.read() as connection:
        settings = {name: _pragma(connection, name) for name in ("journal_mode", "synchronous", "foreign_keys")}
        assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
        assert _pragma(connection, "secure_delete") == 1
    database.close()


def test_a_new_file_is_opened_while_another_process_sets_it_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite refuses at once, whatever the timeout: the workers of one server open a new store together."""
    refusals = 2

    class Cursor(sqlite3.Cursor):
        def execute(self, statement: str, values: Any = (), /) -> "Cursor":  # noqa: ANN401  # as in the base class
            nonlocal refusals
            if "journal_mode" in statement and refusals:
                refusals -= 1
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorcode = sqlite3.SQLITE_BUSY
                raise error
            super().execute(statement, values)
            return self

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:  # noqa: ANN401  # as in the base class
            return super().cursor(factory)

    connect = partial(sqlite3.connect, factory=Connection)
    monkeypatch.setattr(sqlite3.dbapi2, "connect", connect)
    Store.open(tmp_path).close()
    assert refusals == 0


def test_only_writes_that_may_be_lost_do_not_wait_for_the_disk(tmp_path: Path) -> None:
    """On one connection, since the pool hands the same out again."""
    database = Database(tmp_path)
    modes = []
    for durable in (True, False, True):
        with database.write(durable=durable) as connection:
            modes.append(_pragma(connection, "synchronous"))
    database.close()
    assert modes == [2, 1, 2]


def _pragma(connection: Connection, name: str) -> object:
    return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def test_a_store_of_a_later_localmem_is_refused(place: str) -> None:
    Store.open(place).close()
    database = Database(place)
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(NewerStore, match=r"written by a newer localmem \(schema 9999, this one has 0003\); update"):
        Store.open(place)
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0003'")
    database.close()
    Store.open(place).close()


def test_the_tables_of_someone_else_are_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "memory.db") as other:
        other.execute("CREATE TABLE sessions (x)")
    other.close()
    with pytest.raises(StoreError, match="contains a table 'sessions' of another program"):
        Store.open(tmp_path)


def test_a_full_disk_is_one_line_and_harms_nothing(tmp_path: Path) -> None:
    """SQLite is told that the file cannot grow, which is how it learns of a full disk as well."""
    with Store.open(tmp_path) as store:
        remember(store, "ann", "rsum", "s1", [add_unit("u1")])
        before = list(store.export("ann"))
        pages = [1]
        event.listen(store._database._engine, "begin", lambda connection: _room(connection, pages[0]))
        journal = store.journal("bob", "rsum")
        with pytest.raises(StoreError, match=r"the disk that holds .*memory\.db is full; free some space") as caught:
            journal.add_turns("s1", make_turns("s1", "x" * 1_000_000))
        assert "\n" not in str(caught.value)
        with pytest.raises(StoreError, match="is full"):
            store.journal("ann", "rsum").commit("c", [add_unit("u2", text="x" * 1_000_000)])
        assert list(store.export("ann")) == before
        pages[0] = 1 << 30
        journal.add_turns("s1", make_turns("s1", "x" * 1_000_000))
        assert store.users() == ["ann", "bob"]
        assert store.problems() == []


def _room(connection: Connection, pages: int) -> None:
    connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *args: object, **more: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(StoreError, match=r"as data directory \(Read-only file system\); make it"):
        Store.open(tmp_path)


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        remember(store, "ann", "rsum", "s1", [add_unit("u1")])
    with Store.open(f"sqlite:///file:{tmp_path}/memory.db?mode=ro&uri=true") as store:
        with pytest.raises(StoreError, match=r"cannot be written; make the folder writable or choose another"):
            store.journal("ann", "rsum").add_turns("s2", make_turns("s2", "one"))
        assert store.users() == ["ann"]


def test_a_place_that_is_no_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("words")
    with pytest.raises(StoreError, match=r"file as data directory \(File exists\)"):
        Store.open(tmp_path / "file")


def test_a_file_that_is_no_store_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"These are not the bytes of a database." * 500)
    with pytest.raises(StoreError, match=r"memory\.db is not a localmem store; choose another data directory"):
        Store.open(tmp_path)


def test_a_damaged_file_is_one_line_and_found_by_the_check(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        for number in range(40):
            remember(store, "ann", "rsum", f"s{number}", [add_unit(f"u{number}")], "words " * 200)
    file = tmp_path / "memory.db"
    raw = bytearray(file.read_bytes())
    raw[16384:] = bytes(len(raw) - 16384)
    file.write_bytes(raw)
    with Store.open(tmp_path) as store:
        assert store.problems()
        with pytest.raises(StoreError, match=r"memory\.db is damaged; move it away and import an export"):
            list(store.export("ann"))


def test_a_url_that_leads_nowhere_is_one_line(tmp_path: Path) -> None:
    for place, error, message in (
        ("://", BadInput, "is not a database URL"),
        ("sqlite://", BadInput, "an SQLite store needs a file"),
        ("oracle+nothing://host/name", BadInput, "is not a supported database"),
        (f"sqlite:///{tmp_path}/not/there.db", StoreError, "cannot be opened; check that its folder exists"),
        ("postgresql+asyncpg_missing://ann:secret@host/name", BadInput, "is not a supported database"),
        ("mysql+mysqldb://ann:secret@host/name", MissingExtra, "needs the Python package MySQLdb"),
    ):
        with pytest.raises(error, match=message) as caught:
            Store.open(place)
        assert "secret" not in str(caught.value)


def test_open_sessions_and_users_are_looked_up_without_reading_everybody(store: Store) -> None:
    for user, closes in (("ann", False), ("bob", True)):
        journal = store.journal(user, "rsum")
        for session in ("s1", "s2"):
            journal.add_turns(session, make_turns(session, "Hello."))
        journal.close("s1")
        if closes:
            journal.close("s2")
    assert store.lookups.with_open_sessions() == {"ann": 1}
    assert [store.lookups.exists(name) for name in ("ann", "bob", "eve")] == [True, True, False]
    with store._database.read() as connection:
        if connection.dialect.name == "sqlite":
            query = 'EXPLAIN QUERY PLAN SELECT "user", count(*) FROM sessions WHERE state = \'open\' GROUP BY "user"'
            assert "ix_sessions_open" in str(connection.exec_driver_sql(query).all())
