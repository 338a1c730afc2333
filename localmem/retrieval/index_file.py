"""IndexFile: an index that takes long to make, kept in a file beside the ids and the content that it was made of.

Knows nothing of encoders or FAISS: an index is bytes here. The file is derived data: whatever is wrong with it, the
index is made anew, and that is said and counted. It is checked before anything in it is believed.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localmem.errors import BadInput
from localmem.files import write_atomic
from localmem.types import Unit

log = logging.getLogger(__name__)

_MAGIC = b"localmem index 1\n"
_HEADER = 10_000  # bytes that a header may have
_MARK = 16  # bytes of a row's digest

Marks = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Kept:
    """The rows' ids in order, a digest of each row's content, (n, 16), and the index over them."""

    ids: Sequence[str]
    marks: Marks
    index: NDArray[np.uint8]


class _Refused(Exception):
    """What is wrong with a file, to go on 'the index file F ...'."""


class IndexFile:
    """One index at `path`. What it was `made_by`, the encoder and the kind of index, stands in it: no other reads it.

    `refused` counts the files that could not be used, `unwritten` those that could not be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.refused = 0
        self.unwritten = 0

    def read(self, made_by: str) -> Kept | None:
        """What is kept, if it is whole and was made by the same; else None."""
        try:
            return _parsed(self._path.read_bytes(), made_by)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.refuse(f"cannot be read: {error.strerror}")
        except _Refused as error:
            self.refuse(str(error))
        return None

    def refuse(self, why: str) -> None:
        """Say and count that the file is of no use."""
        self.refused += 1
        log.warning("the index file %s %s; the index is made anew", self._path, why)

    def write(self, kept: Kept, made_by: str) -> None:
        """In place of what is there, in one step. A disk that refuses is said and counted, and is no error."""
        try:
            write_atomic(self._path, _pieces(kept, made_by), "the index is rebuilt at the next start", mode=0o600)
        except BadInput as error:
            self.unwritten += 1
            log.warning("%s", error)


def marks_of(rows: NDArray[np.float32]) -> Marks:
    """A digest of each row."""
    data = b"".join(blake2b(row, digest_size=_MARK).digest() for row in np.ascontiguousarray(rows, dtype="<f4"))
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, _MARK)


def still_there(kept: Kept, units: Sequence[Unit], marks: Marks) -> NDArray[np.bool_] | None:
    """Which of the kept rows are among the units, when those are the first of the units, in order, and unchanged.

    Rows that are no longer there and units that were added since do not matter. None when the file is of other units.
    """
    place = {unit.id: at for at, unit in enumerate(units)}
    at = np.array([place.get(kept_id, -1) for kept_id in kept.ids], dtype=np.int64)
    there: NDArray[np.bool_] = at >= 0
    count = int(np.count_nonzero(there))
    same = np.array_equal(at[there], np.arange(count)) and np.array_equal(kept.marks[there], marks[:count])
    return there if same and count else None


def _pieces(kept: Kept, made_by: str) -> list[bytes | memoryview]:
    ids = json.dumps(list(kept.ids), ensure_ascii=False).encode("utf-8", "surrogatepass")
    parts: list[bytes | memoryview] = [ids, kept.marks.tobytes(), kept.index.data]
    rows = len(kept.ids)
    header = {"made_by": made_by, "rows": rows, "ids": len(ids), "sha256": _checksum(rows, len(ids), parts)}
    return [_MAGIC, json.dumps(header).encode() + b"\n", *parts]


def _parsed(data: bytes, made_by: str) -> Kept:
    """Raises _Refused. Nothing behind the header is looked at before its checksum was right."""
    start = data.find(b"\n", len(_MAGIC), len(_MAGIC) + _HEADER) + 1
    if not data.startswith(_MAGIC) or not start:
        raise _Refused("is no index file")
    try:
        header = json.loads(data[len(_MAGIC) : start])
        made_by_it, rows, ids, checksum = (header[key] for key in ("made_by", "rows", "ids", "sha256"))
    except (ValueError, KeyError, TypeError):
        raise _Refused("has a damaged head") from None
    if made_by_it != made_by:
        raise _Refused(f"was made by {made_by_it!r:.80}, not by {made_by!r}")
    body = memoryview(data)[start:]
    if _checksum(rows, ids, [body]) != checksum:
        raise _Refused("is damaged: its checksum is wrong")
    marks = np.frombuffer(body, np.uint8, rows * _MARK, ids).reshape(rows, _MARK)
    names = json.loads(bytes(body[:ids]).decode("utf-8", "surrogatepass"))
    return Kept(names, marks, np.frombuffer(body, np.uint8, offset=ids + rows * _MARK))


def _checksum(rows: object, ids: object, parts: Sequence[bytes | memoryview]) -> str:
    digest = sha256(f"{rows} {ids}\n".encode())
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
