"""RowIndex: FAISS over rows of numbers, which proposes the rows that may be nearest to a query; IndexFile saves one.

Does not depend on encoders. Scores have the precision of the index; DenseRetriever ranks by its own vectors.
"""

import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localmem.errors import BadInput
from localmem.files import write_atomic
from localmem.retrieval.base import IndexKind
from localmem.retrieval.gpu_device import FaissObject, GpuDevice, gpu_for
from localmem.types import Unit

Rows = NDArray[np.float32]
Mask = NDArray[np.bool_]

_GPU_RESULTS = 2048  # the most results of one query that FAISS returns on a GPU

# Measured over 100,000 vectors of MiniLM, 10,000 of dialogue sentences and the others noisy mixtures of two of those,
# which are harder: of the exact ten nearest a graph finds 0.980 at an effort of 128 and 0.989 at 192; lists find 0.91
# when 0.06 of them are probed, 0.94 at 0.1, 0.970 at 0.2 and 0.983 at 0.3. `localmem bench retrieval` measures again.
_NEIGHBOURS, _BUILD_EFFORT, _SEARCH_EFFORT = 32, 80, 192
_LISTS, _ROWS_PER_LIST, _PROBED_SHARE = 4, 39, 0.2
_ROWS_PER_THREAD = 64  # rows to add that are worth another thread
_SCANNED = 25_000  # rows in a mask up to which a scan of them is faster than a graph that leads past the others


class RowIndex:
    """Rows in the order of addition, at half precision if `half`.

    "flat" compares all of them; on a GPU where FAISS has one. "hnsw" walks a graph of neighbours, always on the CPU.
    "ivf" compares those in the lists whose centres are nearest: 4 * sqrt(n) lists, as FAISS recommends below a million
    rows, but no fewer than 39 rows a list, the minimum of its k-means; a share of the lists is probed.
    """

    def __init__(self, kind: IndexKind, index: FaissObject, *, half: bool, gpu: GpuDevice | None) -> None:
        self.kind = kind
        self._index = index
        self._half = half
        self._on_gpu = gpu is not None

    @classmethod
    def build(cls, kind: IndexKind, rows: Rows, *, half: bool = True, device: str = "auto") -> "RowIndex":
        """An index over these rows, on the device of the settings. Raises BadSettings for one that is absent."""
        gpu = gpu_for(device) if kind != "hnsw" else None
        if gpu and kind == "flat":
            return cls(kind, _gpu_flat(rows, half, gpu), half=half, gpu=gpu)
        build: Callable[[Rows, bool], FaissObject] = {"flat": _flat, "hnsw": _graph, "ivf": _lists}[kind]
        index = build(rows, half)
        return cls(kind, _to_gpu(index, half, gpu) if gpu else index, half=half, gpu=gpu)

    @classmethod
    def from_bytes(
        cls, kind: IndexKind, data: NDArray[np.uint8], *, half: bool = True, device: str = "auto"
    ) -> "RowIndex":
        """The index that `to_bytes` wrote. Raises RuntimeError where FAISS cannot read it; verify the bytes before."""
        index = _faiss().deserialize_index(data)
        gpu = gpu_for(device) if kind == "ivf" else None
        return cls(kind, _to_gpu(index, half, gpu) if gpu else index, half=half, gpu=gpu)

    def to_bytes(self) -> NDArray[np.uint8]:
        """The index in the format of FAISS."""
        index = self._index.to_cpu() if self._on_gpu else self._index
        data: NDArray[np.uint8] = _faiss().serialize_index(index)
        return data

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dimension(self) -> int:
        return int(self._index.d)

    @property
    def memory(self) -> int:
        own = len(self) * self.dimension * (2 if self._half else 4)
        edges = len(self) * 2 * _NEIGHBOURS * 4 if self.kind == "hnsw" else 0
        lists = len(self) * 8 + int(self._index.nlist) * self.dimension * 4 if self.kind == "ivf" else 0
        return own + edges + lists

    def add(self, rows: Rows) -> None:
        if self._on_gpu:
            self._index.add(rows)
        else:
            with _threads_for(len(rows) // _ROWS_PER_THREAD + 1):
                self._index.add(rows)

    def propose(self, queries: Rows, count: int, mask: Mask | None = None) -> tuple[Rows, NDArray[np.int64]]:
        """Scores and rows of the nearest `count` of each query, best first, -1 where there are no more.

        With a mask only rows for which it is true; a GPU cannot leave rows out, so it returns many rows of both kinds.
        """
        if self._on_gpu:
            most = count if mask is None else _GPU_RESULTS
            scores, rows = self._index.search(queries, min(most, len(self), _GPU_RESULTS))
            return scores, rows
        with _threads_for(len(queries)):
            if mask is not None:
                return self._propose_within(queries, count, mask)
            scores, rows = self._index.search(queries, min(count, len(self)))
            return scores, rows

    def _propose_within(self, queries: Rows, count: int, mask: Mask) -> tuple[Rows, NDArray[np.int64]]:
        faiss = _faiss()
        size = int(np.count_nonzero(mask))
        count = min(count, size)
        selector = faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
        if self.kind == "hnsw" and size <= _SCANNED:
            storage = faiss.downcast_index(self._index.storage)
            scores, rows = storage.search(queries, count, params=faiss.SearchParameters(sel=selector))
        else:
            scores, rows = self._index.search(queries, count, params=self._effort(selector, size))
        return scores, rows

    def _effort(self, selector: FaissObject, size: int) -> FaissObject:
        """The rows within a small mask lie far apart, so the effort grows as the mask shrinks."""
        faiss = _faiss()
        share = size / len(self)
        if self.kind == "hnsw":
            return faiss.SearchParametersHNSW(sel=selector, efSearch=math.ceil(_SEARCH_EFFORT / share))
        if self.kind == "ivf":
            probes = self._index.nlist if size <= _SCANNED else math.ceil(self._index.nprobe / share)
            return faiss.SearchParametersIVF(sel=selector, nprobe=min(self._index.nlist, probes))
        return faiss.SearchParameters(sel=selector)


@contextmanager
def _threads_for(count: int) -> Iterator[None]:
    """At most `count` threads: FAISS divides rows and queries among its threads, and for few it only waits for them."""
    faiss = _faiss()
    usual = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(min(usual, count))
    try:
        yield
    finally:
        faiss.omp_set_num_threads(usual)


def _faiss() -> FaissObject:
    import faiss

    return faiss


def _flat(rows: Rows, half: bool) -> FaissObject:
    faiss = _faiss()
    index = faiss.index_factory(rows.shape[1], "SQfp16" if half else "Flat", faiss.METRIC_INNER_PRODUCT)
    index.add(rows)
    return index


def _gpu_flat(rows: Rows, half: bool, gpu: GpuDevice) -> FaissObject:
    faiss = _faiss()

    def make(resources: FaissObject) -> FaissObject:
        config = faiss.GpuIndexFlatConfig()
        config.useFloat16, config.device = half, gpu.number
        index = faiss.GpuIndexFlatIP(resources, rows.shape[1], config)
        index.add(rows)
        return index

    return gpu.build(make)


def _graph(rows: Rows, half: bool) -> FaissObject:
    """Hierarchical navigable small worlds (Malkov and Yashunin, 2018)."""
    faiss = _faiss()
    storage = "SQfp16" if half else "Flat"
    graph = faiss.index_factory(rows.shape[1], f"HNSW{_NEIGHBOURS}_{storage}", faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction, graph.hnsw.efSearch = _BUILD_EFFORT, _SEARCH_EFFORT
    graph.add(rows)
    return graph


def _lists(rows: Rows, half: bool) -> FaissObject:
    faiss = _faiss()
    count = max(1, min(round(_LISTS * math.sqrt(len(rows))), len(rows) // _ROWS_PER_LIST))
    storage = "SQfp16" if half else "Flat"
    index = faiss.index_factory(rows.shape[1], f"IVF{count},{storage}", faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1  # a single list of few rows is fine
    index.train(rows)
    index.nprobe = max(1, math.ceil(_PROBED_SHARE * count))
    index.add(rows)
    return index


def _to_gpu(index: FaissObject, half: bool, gpu: GpuDevice) -> FaissObject:
    faiss = _faiss()
    options = faiss.GpuClonerOptions()
    options.useFloat16 = half
    options.useFloat16CoarseQuantizer = False
    return gpu.build(lambda resources: faiss.index_cpu_to_gpu(resources, gpu.number, index, options))


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

    The file is derived data: whatever is wrong with it, the index is built again, which is logged and counted. Nothing
    in the file is used before its checksum is verified.

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
