"""A GPU gives the same answers as a CPU, though its indexes cannot leave rows out of a search."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from localmem.retrieval import dense, row_index
from localmem.retrieval.base import Match, Scope
from localmem.retrieval.dense import DenseRetriever, Kind
from localmem.retrieval.gpu_device import GpuDevice, gpu_count
from tests.fakes import START, WordEncoder, unit
from tests.retrieval.test_dense import TableEncoder, assert_same_matches, brute_force, unit_rows

COUNT = 6000  # more than the results that FAISS gives on a GPU
SCOPES = [None, Scope(since=START + timedelta(minutes=3000)), Scope(until=START + timedelta(minutes=20))]


def answers(kind: Kind, half: bool = True, file: Path | None = None) -> list[list[list[Match]]]:
    rows = unit_rows(np.random.default_rng(8), COUNT + 20)
    retriever = DenseRetriever(TableEncoder(rows), kind=kind, half=half, file=file)
    retriever.add([unit(str(n), time=START + timedelta(minutes=n)) for n in range(COUNT)])
    retriever.remove([str(n) for n in range(0, COUNT, 9)])
    queries = [str(COUNT + n) for n in range(20)]
    return [retriever.search(queries, k, scope) for scope in SCOPES for k in (10, 3000)]


def brute_force_results() -> list[list[list[tuple[str, float]]]]:
    """Four lines of numpy a query, over the rows that are there and admitted."""
    rows = unit_rows(np.random.default_rng(8), COUNT + 20)
    results = []
    for first, last in ((0, COUNT), (3000, COUNT), (0, 21)):
        present = np.array([n for n in range(first, last) if n % 9])
        for k in (10, 3000):
            best = [brute_force(rows[present], query, k) for query in rows[COUNT:]]
            results.append([[(str(present[int(name)]), score) for name, score in each] for each in best])
    return results


class CpuAsGpu(GpuDevice):
    """A device without a GPU: its resources are an object, its indexes those of the CPU."""

    def __init__(self) -> None:
        super().__init__(0)
        self._resources = object()


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> CpuAsGpu:
    """Indexes of the CPU behind the path of a GPU: no row can be left out, and no more than 2048 come back."""

    def refuses(*_: object) -> None:
        raise AssertionError("a GPU has no selector")

    device = CpuAsGpu()
    for module in (row_index, dense):
        monkeypatch.setattr(module, "gpu_for", lambda name: None if name == "cpu" else device)
    flat = row_index._flat
    monkeypatch.setattr(row_index, "_gpu_flat", lambda rows, half, gpu: gpu.build(lambda _: flat(rows, half)))
    monkeypatch.setattr(row_index, "_to_gpu", lambda index, _half, gpu: gpu.build(lambda _: index))
    monkeypatch.setattr(row_index.RowIndex, "_propose_within", refuses)
    return device


@pytest.mark.parametrize("half", [True, False])
def test_a_scan_without_selectors_is_exact(fake_gpu: CpuAsGpu, half: bool) -> None:
    for results, expected in zip(answers("auto", half), brute_force_results(), strict=True):
        assert_same_matches(results, expected)


def test_auto_scans_on_a_gpu_whatever_the_size(fake_gpu: CpuAsGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "EXACT_UNTIL", 10)
    retriever = DenseRetriever(WordEncoder())
    retriever.add([unit(f"u{n}", f"dog {n}") for n in range(40)])
    assert retriever._index is not None
    assert retriever._index.kind == "flat"


@pytest.mark.gpu
@pytest.mark.parametrize("half", [True, False])
def test_a_scan_on_a_real_gpu_is_exact(half: bool) -> None:
    if not gpu_count():
        pytest.skip("needs a GPU, and FAISS built for it (the gpu extra)")
    for results, expected in zip(answers("auto", half), brute_force_results(), strict=True):
        assert_same_matches(results, expected)


@pytest.mark.gpu
def test_lists_on_a_real_gpu_find_nearly_all_and_come_back_from_their_file(tmp_path: Path) -> None:
    if not gpu_count():
        pytest.skip("needs a GPU, and FAISS built for it (the gpu extra)")
    first = answers("ivf", file=tmp_path / "lists")
    assert (tmp_path / "lists").is_file()
    for results, exact in zip(first, brute_force_results(), strict=True):
        for matches, truth in zip(results, exact, strict=True):
            assert len(matches) == len(truth)
    assert answers("ivf", file=tmp_path / "lists") == first
