"""A GPU as FAISS uses it: one scratch memory for all indexes on it, and one caller at a time.

FAISS forbids two threads in one StandardGpuResources, even for searches of different indexes, and the indexes of all
users share one. So every call goes through the device. Searches that arrive during a call form the next batch; those
of one index become one call. Does not depend on what is indexed.
"""

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from localmem.batching import Batched
from localmem.errors import BadSettings

# Bytes of scratch memory, which is taken once; a search that needs more takes it for its time. By itself FAISS takes
# 1.5 GB, which a backbone on the same GPU may not leave.
_SCRATCH = 256 * 2**20

FaissObject = Any  # the stubs of FAISS lack what its Python code adds to its classes
Result = TypeVar("Result")
Rows = NDArray[np.float32]
Nearest = tuple[Rows, NDArray[np.int64]]  # scores and rows of each query


@dataclass(frozen=True, slots=True)
class _Search:
    index: FaissObject
    queries: Rows
    count: int


class GpuIndex:
    """An index on a GPU. Its memory is released by the device, not by the thread that drops the last reference."""

    def __init__(self, device: "GpuDevice", index: FaissObject) -> None:
        self._device = device
        self._only = [index]  # the one reference, which `release` takes out under the lock
        weakref.finalize(self, device.release, self._only)

    @property
    def index(self) -> FaissObject:
        """The index of FAISS, for calls within `GpuDevice.run`."""
        return self._only[0]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # ntotal, d and nlist, which no other thread changes
        return getattr(self.index, name)

    def add(self, rows: Rows) -> None:
        """Appends rows."""
        self._device.run(lambda _resources: self.index.add(rows))

    def search(self, queries: Rows, count: int) -> Nearest:
        """Scores and rows of the nearest `count` of each query."""
        return self._device.search(self.index, queries, count)

    def to_cpu(self) -> FaissObject:
        """A copy in this computer's memory."""
        return self._device.run(lambda _resources: _faiss().index_gpu_to_cpu(self.index))


class GpuDevice:
    """The GPU of this number. `resources` is FAISS's scratch memory, made by the first use."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._busy = threading.Lock()
        self._resources: FaissObject = None
        self._released: list[FaissObject] = []
        self._searches = Batched(self._search_all)

    def build(self, make: Callable[[FaissObject], FaissObject]) -> GpuIndex:
        """The index that `make` makes in the device's resources."""
        return GpuIndex(self, self.run(make))

    def run(self, call: Callable[[FaissObject], Result]) -> Result:
        """What `call` returns for the resources; no other call runs meanwhile."""
        with self._busy:
            self._released.clear()
            if self._resources is None:
                self._resources = _faiss().StandardGpuResources()
                self._resources.setTempMemory(_SCRATCH)
            return call(self._resources)

    def search(self, index: FaissObject, queries: Rows, count: int) -> Nearest:
        """The nearest `count` rows of the index to each query, together with the searches that wait at the moment."""
        return self._searches([_Search(index, queries, count)])[0]

    def release(self, only: list[FaissObject]) -> None:
        """Frees an index now or with the next call. Never waits: a garbage collection may come inside of a call."""
        self._released.append(only.pop())
        if self._busy.acquire(blocking=False):
            try:
                self._released.clear()
            finally:
                self._busy.release()

    def _search_all(self, searches: Sequence[_Search]) -> list[Nearest]:
        groups: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for at, search in enumerate(searches):
            groups[id(search.index), search.count].append(at)
        results: dict[int, Nearest] = {}
        for members in groups.values():
            results |= zip(members, self._search_together([searches[at] for at in members]), strict=True)
        return [results[at] for at in range(len(searches))]

    def _search_together(self, searches: Sequence[_Search]) -> list[Nearest]:
        """Searches of one index as one call."""
        first, queries = searches[0], np.concatenate([search.queries for search in searches])
        scores, rows = self.run(lambda _resources: first.index.search(queries, first.count))
        ends = np.cumsum([len(search.queries) for search in searches])[:-1]
        return list(zip(np.split(scores, ends), np.split(rows, ends), strict=True))


def gpu_for(device: str) -> GpuDevice | None:
    """The GPU that `retrieval.device` means, None for the CPU: auto, cpu, cuda or cuda:N.

    Where FAISS is built without GPUs it works on the CPU. Raises BadSettings for a GPU that FAISS does not see.
    """
    count = gpu_count()
    if device == "cpu" or (device == "auto" and not count) or count is None:
        return None
    number = int(device.partition(":")[2] or 0)
    if number >= count:
        raise BadSettings(
            f"retrieval.device is {device!r} and FAISS sees {count} GPUs; use cpu, auto or another number"
        )
    return _device(number)


def gpu_count() -> int | None:
    """How many GPUs FAISS sees; None where it is built without them."""
    faiss = _faiss()
    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else None


@cache
def _device(number: int) -> GpuDevice:
    return GpuDevice(number)


def _faiss() -> FaissObject:
    import faiss

    return faiss
