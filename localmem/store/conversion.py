"""Turns a plain store into an encrypted one and back. A kill at any moment leaves the one or the other, complete.

SQLite: the store is copied into a new file, which takes the place of the old one in a single step; then the bytes of
the old file are overwritten. No other process may use it: it is locked before anything is read, and a connection that
waited for the lock sees a file of zeros, not a store that nobody reads again. PostgreSQL: the rows are rewritten in one
transaction. What has files of its own and can be made again (indexes, typed lines) is deleted.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from sqlalchemy import Connection, and_, bindparam, select, update

from localmem.errors import StoreError
from localmem.store.cipher import is_encrypted, key_literal, load_driver
from localmem.store.database import FILE, Database
from localmem.store.digest_files import FOLDER
from localmem.store.digest_rows import drop_digests
from localmem.store.encryption import Keys, overwrite, sync
from localmem.store.erasure import HISTORY
from localmem.store.index_files import IndexFiles
from localmem.store.schema import changes, mark_seal, migrate, seal_mark, turns
from localmem.store.unit_vectors import delete_unit_vectors
from localmem.store.vectors import reseal_vectors


def convert(place: str | Path, home: Path, keys: Keys, *, encrypt: bool) -> bool:
    """Encrypt the store, or decrypt it with `encrypt` false; False where it is so already.

    `home` is the data directory. Raises StoreError where another process uses it, and for rows that cannot be read.
    """
    is_url = "://" in str(place)
    file = Path(place) / FILE
    state = _is_sealed(str(place)) if is_url else is_encrypted(file)
    if state is None:
        raise StoreError(f"there is no store at {file}; check the data directory")
    if state is encrypt:
        return False
    if is_url:
        _rewrite(Database(place, keys if encrypt else None), keys, encrypt=encrypt)
    else:
        _replace_file(file, keys, encrypt=encrypt)
    IndexFiles(home / "index").delete_all()
    (home / HISTORY).unlink(missing_ok=True)
    rmtree(home / FOLDER, ignore_errors=True)  # of another key
    return True


def _is_sealed(url: str) -> bool:
    with closing(Database(url)) as database:
        migrate(database)
        with database.read() as connection:
            return bool(seal_mark(connection))


def _replace_file(file: Path, keys: Keys, *, encrypt: bool) -> None:
    before, after = (None, keys) if encrypt else (keys, None)
    with closing(Database(file.parent, before)) as database:
        migrate(database)
    draft = file.with_name(f".{file.name}.converted")
    for name in (draft.name, f"{draft.name}-wal", f"{draft.name}-shm", f"{draft.name}-journal"):
        file.with_name(name).unlink(missing_ok=True)  # of a run that was killed
    with _only_user(file, before) as connection:
        target = key_literal(after.derive("database")) if after else "''"
        connection.execute(f"ATTACH DATABASE ? AS target KEY {target}", (str(draft),))
        connection.execute("SELECT sqlcipher_export('target')").fetchall()
        connection.execute("DETACH DATABASE target")
        draft.chmod(0o600)
        _rewrite(Database(f"sqlite:///{draft}", after), keys, encrypt=encrypt)
        with file.open("r+b") as old:
            draft.replace(file)
            sync(file.parent)
            overwrite(old.fileno())
            connection.close()  # before the other handle: on POSIX closing any of them gives up the lock


@contextmanager
def _only_user(file: Path, keys: Keys | None) -> Iterator[Any]:
    """A connection that no other process can read or write beside."""
    driver = load_driver()
    connection = driver.connect(str(file), timeout=1, isolation_level=None)
    try:
        if keys:
            connection.execute(f"PRAGMA key = {key_literal(keys.derive('database'))}")
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()  # fails while another connection is open
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")  # in that locking mode the lock stays
        if connection.execute("PRAGMA journal_mode").fetchone() != ("delete",):  # another one came in between
            raise StoreError(f"{file} is in use; stop the server and other commands, then try again")
        yield connection
    except driver.Error as error:
        raise StoreError(f"{file} is in use ({error}); stop the server and other commands, then try again") from error
    finally:
        connection.close()


def _rewrite(database: Database, keys: Keys, *, encrypt: bool) -> None:
    """Seal or open all rows in one transaction, and close the database."""
    before, after = (None, keys.vectors) if encrypt else (keys.vectors, None)
    with closing(database):
        with database.write() as connection:
            _rewrite_texts(connection, keys.seal if encrypt else lambda _user, text: keys.open(text))
            reseal_vectors(connection, before, after)
            if not database.files:
                delete_unit_vectors(connection, "true", [])
                drop_digests(connection)  # of another key
                mark_seal(connection, keys if encrypt else None)
        database.checkpoint()


def _rewrite_texts(connection: Connection, change: Callable[[str, str], str]) -> None:
    for table, names in ((turns, ("speaker", "text")), (changes, ("body",))):
        key = list(table.primary_key.columns)
        of_row = and_(*(column == bindparam(f"of_{column.name}") for column in key))
        statement = update(table).where(of_row).values({name: bindparam(f"new_{name}") for name in names})
        for user in connection.execute(select(table.c.user).distinct()).scalars().all():
            rows = connection.execute(select(table).where(table.c.user == user)).mappings().all()
            values = [
                {f"of_{column.name}": row[column.name] for column in key}
                | {f"new_{name}": change(user, row[name]) for name in names}
                for row in rows
            ]
            connection.execute(statement, values)
