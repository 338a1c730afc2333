"""One erasure from beginning to end: index files, rows, keys, the search of the home's bytes, the signed receipt."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from sqlalchemy import Connection

from localmem.store.change_log import ChangeLog
from localmem.store.database import Database
from localmem.store.erase import Eraser
from localmem.store.erase_check import check_erasure
from localmem.store.index_files import IndexFiles
from localmem.store.receipts import Receipt, sign
from localmem.store.turns import Writer
from localmem.store.unlogged_messages import UnloggedMessages

# The lines typed at `localmem chat`. They do not say whose they are, so every erasure takes all of them.
HISTORY = "chat_history"

_WEIGHTS = {".safetensors", ".gguf", ".bin", ".pt"}


class Erasure:
    """Runs erasures on one store; `home` is the data directory, None where there is none.

    What is erased is added to `unlogged`, so that it is not stored again, however and by whom it was erased.
    """

    def __init__(
        self,
        database: Database,
        writer: Writer,
        log: ChangeLog,
        indexes: IndexFiles,
        unlogged: UnloggedMessages,
        home: Path | None,
    ) -> None:
        self._database, self._writer, self._log = database, writer, log
        self._indexes, self._unlogged, self._home = indexes, unlogged, home

    def run(self, user: str, what: str, erase: Callable[[Eraser], None]) -> Receipt:
        """Index files go first, so that a crash in between leaves none, and again for one written in the meantime."""

        def change(connection: Connection) -> Eraser:
            eraser = Eraser(connection, self._log, user)
            erase(eraser)
            eraser.delete_vectors()
            # Before the commit: what is gone cannot be added any more.
            self._unlogged.add_erased(user, eraser.messages, eraser.sessions)
            return eraser

        files = self._indexes.delete(user)
        erasure = self._writer.run(change)
        files += self._indexes.delete(user)
        if self._home:
            (self._home / HISTORY).unlink(missing_ok=True)
        check = check_erasure(self._database, erasure.texts, list(self._other_files()))
        remaining = check.remaining
        if remaining is not None:
            remaining += len(self._indexes.user_files(user))
        erasure.rows["index files"] = files
        rows = {table: count for table, count in sorted(erasure.rows.items()) if count}
        named = tuple(map(str, check.files))
        receipt = Receipt(what, rows, check.searched, remaining, erasure.reread, erasure.sources, named)
        return sign(receipt, self._home, self._database.keys) if self._home else receipt

    def _other_files(self) -> Iterator[Path]:
        """All files of the home and of the indexes that may hold text or vectors, without those of the database."""
        own = {*self._database.files, *(file.with_name(f"{file.name}-shm") for file in self._database.files)}
        candidates = chain(self._home.rglob("*") if self._home else (), self._indexes.all_files())
        paths = dict.fromkeys(candidates)
        return (path for path in paths if path not in own and path.suffix not in _WEIGHTS and path.is_file())
