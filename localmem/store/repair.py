"""Saves what can be read of a damaged SQLite store into a new one. The original is copied first and never opened.

Rows are read from both ends of a table, as far as its pages allow, and those between one by one: by row number, or by
the session or batch that they belong to. How many are lost is known from the indexes, which lie in pages of their own.
What rests on a lost row is treated as the store would: a session whose row is lost is made again from its turns, and
where the memory of a system lost rows it is cleared and its sessions wait to be read again, because the log is the
source of everything.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from localmem.errors import BadInput, LocalmemError, StoreError
from localmem.store.cipher import KEY_FILE
from localmem.store.database import FILE, Database
from localmem.store.raw_files import copy_file, driver_error, open_file, problems
from localmem.store.schema import metadata, migrate
from localmem.store.sql import Store

if TYPE_CHECKING:
    from localmem.store.encryption import Keys

Row = tuple[Any, ...]
_ORDER = ("sessions", "turns", "batches", "changes", "jobs", "banks", "embeddings", "encoder")


class _Table(NamedTuple):
    """What could be read of a table, and how many rows could not: None where that is not known."""

    rows: Set[Row]
    lost: int | None


class _Parent(NamedTuple):
    """The table whose rows a table without row numbers is read by, and the columns that name them there and here."""

    table: str
    names: tuple[str, ...]
    columns: tuple[str, ...]

    def keys(self, tables: Mapping[str, _Table]) -> Iterator[Row]:
        """The values for `columns`."""
        places = [_names(self.table).index(name) for name in self.names]
        return (tuple(row[place] for place in places) for row in tables[self.table].rows)


_KEYS = {"turns": ("user", "session", "position"), "changes": ("batch", "position")}
_PARENTS = {
    "turns": _Parent("sessions", ("user", "id"), ("user", "session")),
    "changes": _Parent("batches", ("number",), ("batch",)),
}


@dataclass(frozen=True, slots=True)
class Repair:
    """What was saved and lost, by table; a table that could not be read at all has lost an unknown number, None.

    `rebuilt` are the (user, system) whose memory lost rows: their sessions wait to be remembered again.
    """

    folder: Path
    saved: Mapping[str, int]
    lost: Mapping[str, int | None]
    rebuilt: Sequence[tuple[str, str]]


def repair(source: Path, folder: Path, keys: "Keys | None" = None) -> Repair:
    """Save the store in `source` into a new data directory. Raises BadInput where there is one, or nothing to save."""
    if (folder / FILE).exists():
        raise BadInput(f"{folder} has a store already; name a new folder for what can be saved")
    if not (source / FILE).exists():
        raise BadInput(f"there is no store at {source / FILE}; check the data directory")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".repair-") as work:
        copy = Path(work) / FILE
        copy_file(source / FILE, copy)
        with suppress(LocalmemError):  # of an earlier version, and too damaged to be brought to this one
            _migrate(copy, keys)
        tables = _read_tables(copy, keys)
    if not any(table.rows for table in tables.values()):
        raise StoreError(f"nothing of {source / FILE} can be read; restore a backup")
    rows = _consistent(tables)
    if keys:
        shutil.copyfile(source / KEY_FILE, folder / KEY_FILE)
    lost = {name: table.lost for name, table in tables.items() if table.lost != 0}
    for name, table in tables.items():
        if (dropped := len(table.rows) - len(rows[name])) > 0:
            lost[name] = dropped + (lost.get(name) or 0)
    _write(folder, keys, rows)
    return Repair(folder, {table: len(rows[table]) for table in _ORDER}, lost, _requeue(folder, keys, lost))


def _migrate(file: Path, keys: "Keys | None") -> None:
    database = Database(f"sqlite:///{file}", keys)
    try:
        migrate(database)
    finally:
        database.close()


# -- reading -------------------------------------------------------------------------------------------------------


def _read_tables(file: Path, keys: "Keys | None") -> dict[str, _Table]:
    tables: dict[str, _Table] = {}
    with open_file(file, keys) as connection:
        reader = _Reader(connection, driver_error(keys))
        for table in _ORDER:
            tables[table] = reader.read(table, tables)
    return tables


class _Reader:
    """Reads as far as pages are sound."""

    def __init__(self, connection: Any, error: type[Exception]) -> None:  # noqa: ANN401  # of either driver
        self._connection, self._error = connection, error

    def read(self, table: str, tables: Mapping[str, _Table]) -> _Table:
        """The rows of a table; `tables` are those read before it."""
        rows: set[Row] = set()
        columns = ", ".join(f'"{name}"' for name in _names(table))
        select = f'SELECT {columns} FROM "{table}" NOT INDEXED'  # noqa: S608  # our own names, here and below
        key = _KEYS.get(table, ("rowid",))
        for direction in ("ASC", "DESC"):
            order = ", ".join(f'"{name}" {direction}' for name in key)
            if self._add(rows, f"{select} ORDER BY {order}"):
                return _Table(rows, 0)
        parent = _PARENTS.get(table)
        where = " AND ".join(f'"{name}" = ?' for name in (parent.columns if parent else key))
        for values in parent.keys(tables) if parent else self._row_numbers(table):
            self._add(rows, f"{select} WHERE {where}", values)
        total = self._count(table)
        return _Table(rows, total - len(rows) if total is not None and total > len(rows) else None)

    def _add(self, rows: set[Row], query: str, values: Row = ()) -> bool:
        """Add the rows of a query up to the first that cannot be read; whether that was all of them."""
        with suppress(self._error):
            for row in self._connection.execute(query, values):
                rows.add(tuple(row))
            return True
        return False

    def _row_numbers(self, table: str) -> Iterator[Row]:
        with suppress(self._error):
            (last,) = self._connection.execute(f'SELECT MAX(rowid) FROM "{table}"').fetchone()  # noqa: S608
            yield from ((number,) for number in range(1, (last or 0) + 1))

    def _count(self, table: str) -> int | None:
        """The number of rows by an index, which is in pages of its own; None where there is no sound one."""
        counts = []
        with suppress(self._error):
            for row in self._connection.execute(f'PRAGMA index_list("{table}")').fetchall():
                with suppress(self._error):
                    query = f'SELECT COUNT(*) FROM "{table}" INDEXED BY "{row[1]}"'  # noqa: S608
                    counts.append(int(self._connection.execute(query).fetchone()[0]))
        return max(counts, default=None)


# -- making it consistent ------------------------------------------------------------------------------------------


def _consistent(tables: Mapping[str, _Table]) -> dict[str, list[Row]]:
    """The rows without those that refer to a lost one; a lost session that has turns is made again."""
    records = {
        name: [dict(zip(_names(name), row, strict=True)) for row in table.rows] for name, table in tables.items()
    }
    sessions = {(each["user"], each["id"]) for each in records["sessions"]}
    orphans: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for turn in records["turns"]:
        if (turn["user"], turn["session"]) not in sessions:
            orphans.setdefault((turn["user"], turn["session"]), []).append(turn)
    first = max((each["number"] for each in records["sessions"]), default=0) + 1
    for number, ((user, name), turns) in enumerate(sorted(orphans.items()), first):
        times = [turn["time"] for turn in turns]
        position = max(turn["position"] for turn in turns) + 1
        values = {"number": number, "user": user, "id": name, "state": "closed", "position": position}
        records["sessions"].append({**values, "started": min(times), "ended": max(times)})
        sessions.add((user, name))
    records["batches"] = [
        each for each in records["batches"] if each["session"] is None or (each["user"], each["session"]) in sessions
    ]
    batches = {each["number"] for each in records["batches"]}
    records["changes"] = [each for each in records["changes"] if each["batch"] in batches]
    records["jobs"] = [each for each in records["jobs"] if (each["user"], each["session"]) in sessions]
    return {table: [tuple(each[name] for name in _names(table)) for each in records[table]] for table in _ORDER}


def _names(table: str) -> list[str]:
    return [column.name for column in metadata.tables[table].columns]


def _write(folder: Path, keys: "Keys | None", tables: Mapping[str, Sequence[Row]]) -> None:
    """A new store with these rows, which passes its own check."""
    Store.open(folder, keys=keys).close()
    with open_file(folder / FILE, keys) as connection:
        connection.execute("BEGIN")
        for table in _ORDER:
            columns = ", ".join(f'"{name}"' for name in _names(table))
            marks = ", ".join("?" * len(_names(table)))
            connection.executemany(f'INSERT INTO "{table}" ({columns}) VALUES ({marks})', tables[table])  # noqa: S608
        connection.execute("COMMIT")
        if damage := problems(connection):
            raise StoreError(f"what was saved into {folder} is not consistent ({damage[0]}); restore a backup")


def _requeue(folder: Path, keys: "Keys | None", lost: Mapping[str, int | None]) -> list[tuple[str, str]]:
    """Clear each memory that lost rows, so that its sessions are read again; which these are."""
    if not lost.keys() & {"sessions", "batches", "changes", "jobs"}:
        return []
    rebuilt = []
    with Store.open(folder, keys=keys) as store:
        for user in store.users():
            for system in store.systems(user):
                store.clear(user, system)
                rebuilt.append((user, system))
    return rebuilt


def lost_counts(lost: Mapping[str, int | None]) -> list[str]:
    """The losses as words."""
    return [f"{count or 'an unknown number of'} {table}" for table, count in lost.items()]
