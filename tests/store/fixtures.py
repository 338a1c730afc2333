"""A store of each version of the schema, as a dump that is written once and never changed; each holds the same user.

`python -m tests.store.fixtures` writes the dump of the current version, from the one before it, where it is missing.
"""

import sqlite3
from pathlib import Path

from localmem.store import Store
from localmem.store.schema import REVISION, SCRIPTS

DATA = Path(__file__).parent / "data"
EXPORT = (DATA / "export.jsonl").read_text(encoding="utf-8").splitlines()
REVISIONS = sorted(path.name.partition("_")[0] for path in (SCRIPTS / "versions").glob("[0-9]*.py"))


def build_store(home: Path, revision: str) -> None:
    """A data directory with the store of that version."""
    home.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(home / "memory.db")
    connection.executescript((DATA / f"{revision}.sql").read_text(encoding="utf-8"))
    connection.close()


def dump_store(home: Path) -> str:
    """The store of a data directory as statements."""
    connection = sqlite3.connect(home / "memory.db")
    text = "\n".join(connection.iterdump())
    connection.close()
    return f"{text}\n"


def main() -> None:
    """Write the dump of the current version."""
    import tempfile

    if not (DATA / f"{REVISION}.sql").exists():
        with tempfile.TemporaryDirectory() as folder:
            build_store(Path(folder), REVISIONS[-2])
            Store.open(folder).close()
            (DATA / f"{REVISION}.sql").write_text(dump_store(Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
