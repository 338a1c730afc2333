"""The command that serves a model, on a CPU and on a GPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from localmem.errors import BadSettings
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


def test_adapters_in_single_precision_are_refused_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "_on_gpu", lambda: True)
    (tmp_path / "config.json").touch()
    with pytest.raises(BadSettings, match=r"set llm\.dtype to auto"):
        VllmServer(tmp_path, name="m", log=tmp_path / "log", settings=VllmSettings(dtype="float32", lora=True))


def test_a_cpu_build_does_not_chunk_prompts() -> None:
    on_cpu, on_gpu = (command(VllmSettings(), on_gpu=where) for where in (False, True))
    assert "--no-enable-chunked-prefill" in on_cpu
    assert "--no-enable-chunked-prefill" not in on_gpu
    assert "--gpu-memory-utilization" in on_gpu


def test_a_gpu_takes_the_context_that_fits_its_memory_unless_one_is_set() -> None:
    assert option_value(command(VllmSettings(), on_gpu=True), "--max-model-len") == "auto"
    assert option_value(command(VllmSettings(context_length=4096), on_gpu=True), "--max-model-len") == "4096"
    assert "--max-model-len" not in command(VllmSettings(), on_gpu=False)


def test_memory_cards_cache_and_adapters_are_settings() -> None:
    settings = VllmSettings(
        lora=True, adapter_slots=6, adapter_rank=20, gpu_memory=0.55, tensor_parallel=2, kv_cache="fp8"
    )
    words = command(settings, on_gpu=True)
    flags = ("gpu-memory-utilization", "tensor-parallel-size", "kv-cache-dtype", "max-loras", "max-lora-rank")
    assert [option_value(words, f"--{flag}") for flag in flags] == ["0.55", "2", "fp8", "6", "32"]
    on_cpu = command(settings, on_gpu=False)
    assert option_value(on_cpu, "--max-loras") == "7"
    assert "--tensor-parallel-size" not in on_cpu


@pytest.mark.slow
@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_installed_vllm_knows_every_option(on_gpu: bool) -> None:
    """Parsed by the parser of the vLLM that is installed, which is the same version for CPU and GPU."""
    pytest.importorskip("vllm", reason="vLLM is not installed")
    words = command(VllmSettings(lora=True, kv_cache="fp8"), on_gpu=on_gpu)[3:]
    code = (
        "import sys\n"
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "print(make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[1:]).max_model_len)"
    )
    result = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == ("-1" if on_gpu else "None")
