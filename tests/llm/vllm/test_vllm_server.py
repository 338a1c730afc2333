"""The command that serves a model, on a CPU and on a GPU."""

from pathlib import Path

import pytest
import torch

from localmem.llm.vllm import vllm_server
from localmem.llm.vllm.vllm_server import VllmServer, VllmSettings, _command


def command(settings: VllmSettings, *, on_gpu: bool) -> list[str]:
    return _command(Path("weights"), "m", 8000, settings, on_gpu=on_gpu)


def option_value(words: list[str], flag: str) -> str:
    return words[words.index(flag) + 1]


@pytest.mark.parametrize(("narrow", "expected"), [(True, "auto"), (False, "float32")])
def test_a_processor_without_bfloat16_computes_in_single_precision(
    narrow: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": narrow})
    assert option_value(command(VllmSettings(), on_gpu=False), "--dtype") == expected
    assert option_value(command(VllmSettings(), on_gpu=True), "--dtype") == "auto"
    assert option_value(command(VllmSettings(dtype="bfloat16"), on_gpu=False), "--dtype") == "bfloat16"


@pytest.mark.parametrize(("on_gpu", "nice"), [(False, 5), (True, 0)])
def test_on_a_processor_it_yields_to_this_program(
    on_gpu: bool, nice: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_server, "_on_gpu", lambda: on_gpu)
    (tmp_path / "config.json").touch()
    server = VllmServer(tmp_path, name="m", log=tmp_path / "log", settings=VllmSettings())
    assert server._how.nice == nice


@pytest.mark.parametrize(
    ("cores", "on_gpu", "alone"), [(2, False, True), (4, False, True), (8, False, False), (2, True, False)]
)
def test_on_few_cores_it_schedules_and_computes_in_one_process(
    cores: int, on_gpu: bool, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_server, "core_count", lambda: cores)
    environment = vllm_server._environment(VllmSettings(), "key", on_gpu=on_gpu)
    assert environment.get("VLLM_ENABLE_V1_MULTIPROCESSING") == ("0" if alone else None)


def test_its_threads_spin_as_openmp_would_have_them_whatever_this_programs_do() -> None:
    on_cpu, on_gpu = (vllm_server._environment(VllmSettings(), "key", on_gpu=where) for where in (False, True))
    assert on_cpu["GOMP_SPINCOUNT"] == "300000"
    assert "GOMP_SPINCOUNT" not in on_gpu


def test_a_cpu_build_does_not_chunk_prompts() -> None:
    on_cpu, on_gpu = (command(VllmSettings(), on_gpu=where) for where in (False, True))
    assert "--no-enable-chunked-prefill" in on_cpu
    assert "--no-enable-chunked-prefill" not in on_gpu
    assert "--gpu-memory-utilization" in on_gpu
