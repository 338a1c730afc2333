"""RowIndex: FAISS over rows of numbers, which proposes the rows that may be nearest to a query.

Knows how each kind is made, where it lives and how a search is narrowed; nothing of units, and nothing of exactness:
scores are at the precision that the index keeps, and DenseRetriever decides by its own rows.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Made = Literal["flat", "hnsw", "ivf"]
Rows = NDArray[np.float32]
Mask = NDArray[np.bool_]
Foreign = Any  # of FAISS, whose own stubs do not know what its Python adds to its classes

_MOST = 2048  # results of one query that FAISS gives on a GPU

# Measured over 100,000 MiniLM vectors, 10,000 of dialogue sentences and mixtures of two with noise, which are harder:
# of the exact ten nearest a graph found 0.980 at an effort of 128 and 0.989 at 192; lists found 0.91 when 0.06 of them
# were probed, 0.94 at 0.1, 0.970 at 0.2 and 0.983 at 0.3. `localmem bench retrieval` measures them again.
_NEIGHBOURS, _BUILD_EFFORT, _SEARCH_EFFORT = 32, 80, 192
_LISTS, _POINTS, _PROBED = 4, 39, 0.2
_SHARE = 64  # rows to add that are worth a thread
_SCANNED = 25_000  # admitted rows that are sooner scanned one by one than found in a graph that leads past them


class RowIndex:
    """Rows in the order of addition, at half precision if `half`.

    "flat" compares all of them; on the GPU where FAISS has one. "hnsw" walks a graph of neighbours, always on the CPU,
    where it is made. "ivf" compares those in the lists whose centres are nearest: 4 * sqrt(n) lists, as FAISS advises
    below a million rows, but no fewer than 39 rows a list, which is what k-means needs; a share of them is probed.
    """

    def __init__(self, kind: Made, index: Foreign, *, half: bool, on_gpu: bool) -> None:
        self.kind = kind
        self._index = index
        self._half = half
        self._on_gpu = on_gpu

    @classmethod
    def over(cls, kind: Made, rows: Rows, *, half: bool = True) -> "RowIndex":
        """An index of these rows."""
        on_gpu = kind != "hnsw" and has_gpu()
        make: Callable[[Rows, bool], Foreign] = {"flat": _flat, "hnsw": _graph, "ivf": _lists}[kind]
        index = _gpu_flat(rows, half) if on_gpu and kind == "flat" else make(rows, half)
        if on_gpu and kind == "ivf":
            index = _to_gpu(index, half)
        return cls(kind, index, half=half, on_gpu=on_gpu)

    @classmethod
    def loaded(cls, kind: Made, data: NDArray[np.uint8], *, half: bool = True) -> "RowIndex":
        """What `dumped` gave. Raises RuntimeError for what FAISS cannot read; give it nothing that may be damaged."""
        faiss = _faiss()
        index = faiss.deserialize_index(data)
        on_gpu = kind == "ivf" and has_gpu()
        return cls(kind, _to_gpu(index, half) if on_gpu else index, half=half, on_gpu=on_gpu)

    def dumped(self) -> NDArray[np.uint8]:
        """The index as bytes."""
        faiss = _faiss()
        index = faiss.index_gpu_to_cpu(self._index) if self._on_gpu else self._index
        data: NDArray[np.uint8] = faiss.serialize_index(index)
        return data

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dimension(self) -> int:
        return int(self._index.d)

    @property
    def memory(self) -> int:
        """Bytes of the rows, of a graph's edges, and of the lists' centres and numbers."""
        own = len(self) * self.dimension * (2 if self._half else 4)
        edges = len(self) * 2 * _NEIGHBOURS * 4 if self.kind == "hnsw" else 0
        lists = len(self) * 8 + int(self._index.nlist) * self.dimension * 4 if self.kind == "ivf" else 0
        return own + edges + lists

    def add(self, rows: Rows) -> None:
        """The next rows."""
        if self._on_gpu:
            self._index.add(rows)
        else:
            with _threads_for(len(rows) // _SHARE + 1):
                self._index.add(rows)

    def propose(self, queries: Rows, most: int, mask: Mask | None = None) -> tuple[Rows, NDArray[np.int64]]:
        """Scores and rows of the nearest `most` of each query, best first, -1 where there are no more.

        With a mask only rows for which it is true; on a GPU, which cannot leave rows out, all kinds, but many.
        """
        if self._on_gpu:
            found = self._index.search(queries, min(most if mask is None else _MOST, len(self), _MOST))
        else:
            with _threads_for(len(queries)):
                found = self._on_cpu(queries, most, mask)
        scores, rows = found
        return scores, rows

    def _on_cpu(self, queries: Rows, most: int, mask: Mask | None) -> tuple[Rows, NDArray[np.int64]]:
        if mask is not None:
            return self._narrowed(queries, most, mask)
        scores, rows = self._index.search(queries, min(most, len(self)))
        return scores, rows

    def _narrowed(self, queries: Rows, most: int, mask: Mask) -> tuple[Rows, NDArray[np.int64]]:
        faiss = _faiss()
        admitted = int(np.count_nonzero(mask))
        most = min(most, admitted)
        only = faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))
        if self.kind == "hnsw" and admitted <= _SCANNED:
            found = faiss.downcast_index(self._index.storage).search(
                queries, most, params=faiss.SearchParameters(sel=only)
            )
        else:
            found = self._index.search(queries, most, params=self._effort(only, admitted))
        scores, rows = found
        return scores, rows

    def _effort(self, only: Foreign, admitted: int) -> Foreign:
        """Few admitted rows lie far apart: the search goes as much further as they are fewer."""
        faiss = _faiss()
        share = admitted / len(self)
        if self.kind == "hnsw":
            return faiss.SearchParametersHNSW(sel=only, efSearch=math.ceil(_SEARCH_EFFORT / share))
        if self.kind == "ivf":
            probed = self._index.nlist if admitted <= _SCANNED else math.ceil(self._index.nprobe / share)
            return faiss.SearchParametersIVF(sel=only, nprobe=min(self._index.nlist, probed))
        return faiss.SearchParameters(sel=only)


@contextmanager
def _threads_for(most: int) -> Iterator[None]:
    """FAISS shares rows and queries out among its threads; where there is little to do it only waits for them."""
    faiss = _faiss()
    usual = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(min(usual, most))
    try:
        yield
    finally:
        faiss.omp_set_num_threads(usual)


def _faiss() -> Foreign:
    import faiss

    return faiss


def has_gpu() -> bool:
    """Whether FAISS can use one."""
    faiss = _faiss()
    return hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() > 0


def _flat(rows: Rows, half: bool) -> Foreign:
    faiss = _faiss()
    if half:
        index = faiss.IndexScalarQuantizer(rows.shape[1], faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    else:
        index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    return index


def _gpu_flat(rows: Rows, half: bool) -> Foreign:
    faiss = _faiss()
    config = faiss.GpuIndexFlatConfig()
    config.useFloat16 = half
    index = faiss.GpuIndexFlatIP(_gpu_memory(), rows.shape[1], config)
    index.add(rows)
    return index


def _graph(rows: Rows, half: bool) -> Foreign:
    """Hierarchical navigable small worlds (Malkov and Yashunin, 2018)."""
    faiss = _faiss()
    kept = "SQfp16" if half else "Flat"
    graph = faiss.index_factory(rows.shape[1], f"HNSW{_NEIGHBOURS}_{kept}", faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction, graph.hnsw.efSearch = _BUILD_EFFORT, _SEARCH_EFFORT
    graph.add(rows)
    return graph


def _lists(rows: Rows, half: bool) -> Foreign:
    """Inverted lists of the rows around centres that k-means finds among these rows."""
    faiss = _faiss()
    count = max(1, min(round(_LISTS * math.sqrt(len(rows))), len(rows) // _POINTS))
    kept = "SQfp16" if half else "Flat"
    index = faiss.index_factory(rows.shape[1], f"IVF{count},{kept}", faiss.METRIC_INNER_PRODUCT)
    index.cp.min_points_per_centroid = 1  # a single list of few rows is fine
    index.train(rows)
    index.nprobe = max(1, math.ceil(_PROBED * count))
    index.add(rows)
    return index


def _to_gpu(index: Foreign, half: bool) -> Foreign:
    faiss = _faiss()
    options = faiss.GpuClonerOptions()
    options.useFloat16 = half
    options.useFloat16CoarseQuantizer = False
    return faiss.index_cpu_to_gpu(_gpu_memory(), 0, index, options)


@cache
def _gpu_memory() -> Foreign:
    """The scratch memory that all indexes of a process share; FAISS would set a gigabyte or more aside for each."""
    faiss = _faiss()
    return faiss.StandardGpuResources()
