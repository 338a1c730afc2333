"""One caller at a time on a GPU, whatever its index; the CPU where the settings say so."""

import gc
import threading
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from localmem.errors import BadSettings
from localmem.retrieval import gpu_device
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.gpu_device import GpuDevice, Nearest, Rows, gpu_for
from tests.fakes import WordEncoder, unit
from tests.retrieval.test_gpu import CpuAsGpu, fake_gpu

__all__ = ["fake_gpu"]


class Scratch:
    """StandardGpuResources that notices two threads in it at once: each call waits a moment for another to come in."""

    def __init__(self) -> None:
        self.meeting = threading.Barrier(2)
        self.overlaps = 0

    def setTempMemory(self, size: int) -> None:  # noqa: N802  # FAISS's name
        assert size < 2**30

    def use(self) -> None:
        try:
            self.meeting.wait(timeout=0.2)
            self.overlaps += 1
        except threading.BrokenBarrierError:
            self.meeting.reset()


class ScratchIndex:
    """An index over the numbers of its rows, in the scratch memory that it shares with others."""

    def __init__(self, scratch: Scratch, first: int = 0) -> None:
        self.scratch, self.first, self.calls = scratch, first, list[int]()

    def add(self, _rows: Rows) -> None:
        self.scratch.use()

    def search(self, queries: Rows, count: int) -> Nearest:
        self.scratch.use()
        self.calls.append(len(queries))
        rows = self.first + queries[:, :1].astype(np.int64) + np.arange(count)
        return -rows.astype(np.float32), rows


def queries(*numbers: int) -> Rows:
    return np.array([[number] for number in numbers], dtype=np.float32)


def run_together(*calls: Callable[[], object]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_two_users_never_are_in_the_resources_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = Scratch()
    monkeypatch.setattr(gpu_device, "_faiss", lambda: SimpleNamespace(StandardGpuResources=lambda: scratch))
    device = GpuDevice(0)
    first, second = (device.build(ScratchIndex) for _ in range(2))
    run_together(lambda: first.search(queries(1), 3), lambda: second.search(queries(2), 3))
    run_together(lambda: first.search(queries(1), 3), lambda: second.add(queries(2)))
    run_together(lambda: first.add(queries(1)), lambda: device.build(lambda resources: resources.use()))
    assert scratch.overlaps == 0


def test_the_scratch_memory_notices_callers_without_a_device() -> None:
    """What the device is for: the same two searches, each under a lock of its own, meet in the resources."""
    scratch = Scratch()
    first, second = ScratchIndex(scratch), ScratchIndex(scratch)
    run_together(lambda: first.search(queries(1), 3), lambda: second.search(queries(2), 3))
    assert scratch.overlaps == 2


def test_searches_that_wait_run_together_and_each_gets_its_own_rows() -> None:
    device, scratch = CpuAsGpu(), Scratch()
    scratch.meeting = threading.Barrier(1)
    shared = device.build(lambda _: ScratchIndex(scratch))
    other = device.build(lambda _: ScratchIndex(scratch, first=100))
    results: dict[str, Nearest] = {}
    holder, free = threading.Event(), threading.Event()

    def hold(_resources: object) -> None:
        holder.set()
        free.wait()

    def search(name: str, index: gpu_device.GpuIndex, *numbers: int) -> threading.Thread:
        thread = threading.Thread(target=lambda: results.update({name: index.search(queries(*numbers), 2)}))
        thread.start()
        return thread

    threads = [threading.Thread(target=device.run, args=(hold,))]
    threads[0].start()
    holder.wait()
    threads.append(search("leader", other, 0))
    while device._searches._leader is None or device._searches._waiting:
        pass
    for name, index, numbers in (("ana", shared, (1,)), ("ben", other, (5,)), ("cem", shared, (7, 8))):
        threads.append(search(name, index, *numbers))
    while len(device._searches._waiting) < 3:
        pass
    free.set()
    for thread in threads:
        thread.join()
    assert shared.index.calls == [3]
    assert {name: rows.tolist() for name, (_, rows) in results.items()} == {
        "leader": [[100, 101]], "ana": [[1, 2]], "ben": [[105, 106]], "cem": [[7, 8], [8, 9]],
    }  # fmt: skip


def test_an_index_is_freed_under_the_lock_or_by_the_next_call() -> None:
    device, freed = CpuAsGpu(), list[str]()

    class Index:
        def __del__(self) -> None:
            freed.append("free" if device._busy.locked() else "unguarded")

    index = device.build(lambda _: Index())
    del index
    gc.collect()
    assert freed == ["free"]
    indexes = [device.build(lambda _: Index())]
    device.run(lambda _: indexes.clear())
    assert freed == ["free"]
    device.run(lambda _: None)
    assert freed == ["free", "free"]


def faiss_with(gpus: int | None) -> Callable[[], object]:
    count = {} if gpus is None else {"StandardGpuResources": object, "get_num_gpus": lambda: gpus}
    return lambda: SimpleNamespace(**count)


@pytest.mark.parametrize(
    ("gpus", "device", "number"),
    [(2, "auto", 0), (2, "cuda", 0), (2, "cuda:1", 1), (2, "cpu", None), (0, "auto", None), (None, "cuda:1", None)],
)
def test_the_device_of_the_settings_rules(
    gpus: int | None, device: str, number: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_device, "_faiss", faiss_with(gpus))
    chosen = gpu_for(device)
    assert (chosen and chosen.number) == number
    assert (chosen is None) == (number is None)


@pytest.mark.parametrize(("gpus", "device"), [(1, "cuda:1"), (0, "cuda")])
def test_a_gpu_that_is_not_there_is_an_error(gpus: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_device, "_faiss", faiss_with(gpus))
    with pytest.raises(BadSettings, match=f"retrieval.device is '{device}' and FAISS sees {gpus} GPUs"):
        gpu_for(device)


def test_a_retriever_on_the_cpu_leaves_the_gpu_alone(fake_gpu: CpuAsGpu) -> None:
    for device, on_gpu in (("cpu", False), ("auto", True)):
        retriever = DenseRetriever(WordEncoder(), device=device)
        retriever.add([unit("u", "a dog")])
        assert retriever._index is not None
        assert retriever._index._on_gpu is on_gpu
        assert [match.id for match in retriever.search(["dog"], 1)[0]] == ["u"]
