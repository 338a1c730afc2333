"""IndexFile: an index that takes long to build, saved with the ids and the content that it was built from.

An index is bytes here; does not depend on encoders or FAISS. The file is derived data: whatever is wrong with it, the
index is built again, which is logged and counted. Nothing in the file is used before its checksum is verified.
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
_MAX_HEADER = 10_000  # bytes
_DIGEST = 16  # bytes of a row's digest

Digests = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """The ids of the rows in order, (n, 16) digests of their content, and the index over them."""

    ids: Sequence[str]
    digests: Digests
    index: NDArray[np.uint8]


class _Invalid(Exception):
    """What is wrong with a file, worded to follow 'the index file F ...'."""


class IndexFile:
    """One index at `path`, usable only by the encoder and the kind of index that built it.

    `rejected` counts the files that could not be used, `unwritten` those that could not be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rejected = 0
        self.unwritten = 0

    def read(self, made_by: str) -> IndexSnapshot | None:
        """The saved index, if it is intact and was built by `made_by`; else None."""
        try:
            return _parse(self._path.read_bytes(), made_by)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.reject(f"cannot be read: {error.strerror}")
        except _Invalid as error:
            self.reject(str(error))
        return None

    def reject(self, reason: str) -> None:
        """Logs and counts that the file cannot be used."""
        self.rejected += 1
        log.warning("the index file %s %s; building the index again", self._path, reason)

    def write(self, snapshot: IndexSnapshot, made_by: str) -> None:
        """Replaces the file in one step. A disk error is logged and counted, but not raised."""
        try:
            write_atomic(self._path, _serialize(snapshot, made_by), "the next start builds the index again", mode=0o600)
        except BadInput as error:
            self.unwritten += 1
            log.warning("%s", error)


def digest_rows(rows: NDArray[np.float32]) -> Digests:
    """A digest of each row, (n, 16)."""
    data = b"".join(blake2b(row, digest_size=_DIGEST).digest() for row in np.ascontiguousarray(rows, dtype="<f4"))
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, _DIGEST)


def surviving_rows(snapshot: IndexSnapshot, units: Sequence[Unit], digests: Digests) -> NDArray[np.bool_] | None:
    """A mask of the saved rows whose units are present, if these are the first of `units`, in order and unchanged.

    Saved rows of removed units and units added since are allowed. None when the file is of other units.
    """
    index_of = {unit.id: index for index, unit in enumerate(units)}
    indices = np.array([index_of.get(unit_id, -1) for unit_id in snapshot.ids], dtype=np.int64)
    surviving: NDArray[np.bool_] = indices >= 0
    count = int(np.count_nonzero(surviving))
    same_order = np.array_equal(indices[surviving], np.arange(count))
    unchanged = same_order and np.array_equal(snapshot.digests[surviving], digests[:count])
    return surviving if unchanged and count else None


def _serialize(snapshot: IndexSnapshot, made_by: str) -> list[bytes | memoryview]:
    ids = json.dumps(list(snapshot.ids), ensure_ascii=False).encode("utf-8", "surrogatepass")
    parts: list[bytes | memoryview] = [ids, snapshot.digests.tobytes(), snapshot.index.data]
    rows = len(snapshot.ids)
    header = {"made_by": made_by, "rows": rows, "ids": len(ids), "sha256": _checksum(rows, len(ids), parts)}
    return [_MAGIC, json.dumps(header).encode() + b"\n", *parts]


def _parse(data: bytes, made_by: str) -> IndexSnapshot:
    """Raises _Invalid."""
    start = data.find(b"\n", len(_MAGIC), len(_MAGIC) + _MAX_HEADER) + 1
    if not data.startswith(_MAGIC) or not start:
        raise _Invalid("is not an index file")
    try:
        header = json.loads(data[len(_MAGIC) : start])
        builder, rows, ids, checksum = (header[key] for key in ("made_by", "rows", "ids", "sha256"))
    except (ValueError, KeyError, TypeError):
        raise _Invalid("has a damaged header") from None
    if builder != made_by:
        raise _Invalid(f"was built by {builder!r:.80}, not by {made_by!r}")
    body = memoryview(data)[start:]
    if _checksum(rows, ids, [body]) != checksum:
        raise _Invalid("is damaged: its checksum is wrong")
    digests = np.frombuffer(body, np.uint8, rows * _DIGEST, ids).reshape(rows, _DIGEST)
    names = json.loads(bytes(body[:ids]).decode("utf-8", "surrogatepass"))
    return IndexSnapshot(names, digests, np.frombuffer(body, np.uint8, offset=ids + rows * _DIGEST))


def _checksum(rows: object, ids: object, parts: Sequence[bytes | memoryview]) -> str:
    digest = sha256(f"{rows} {ids}\n".encode())
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
