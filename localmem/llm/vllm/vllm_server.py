"""A vLLM server of our own: its command line and environment, for GPU and CPU builds."""

import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localmem.errors import BadSettings, MissingExtra, ModelMissing
from localmem.llm.device import core_count, fastest_cpu_dtype
from localmem.llm.vllm.server_process import Progress, ServerCommand, ServerProcess

# whole steps. With 5 it gets a third of this program's share of a core that both want.
_CPU_NICENESS = 5
# A CPU build computes in a process of its own and reserves a core for the one that schedules, which spins while it
# waits. Of two cores that is half: with both in one process the first token comes 1.7 times as soon (latency-cpu.md).
# With more cores the reserved one matters less, and vLLM needs two processes to bind threads to cores.
_FEW_CORES = 4
# How long a thread of OpenMP spins before it sleeps. It is OpenMP's default; this program sets a shorter time for
# itself, which the server would inherit. A step waits a hundred times for all threads, and each wake-up costs time
# (25 ms between tokens in place of 17).
_SPINS = "300000"
_HOST = "127.0.0.1"
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # that vLLM reserves memory for
_STAGES = (
    (r"vLLM API server version|non-default args", "starting vLLM"),
    (r"EngineCore|Initializing a V1 LLM engine", "starting the engine"),
    (r"Starting to load model|Loading (model )?weights|Loading safetensors", "loading weights"),
    (r"Loading weights took|Model loading took", "measuring memory"),
    (r"torch\.compile|Dynamo bytecode|Compiling a graph", "compiling"),
    (r"GPU KV cache size|KV cache size|Warming up|Capturing CUDA graphs", "warming up"),
    (r"Starting vLLM (API )?server|Application startup", "opening the port"),
)


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """Settings of a server.

    `context_length` None is the model's own on a CPU, and on a GPU what the memory left by the weights allows of it.
    `lora` allows loading adapters at run time, at most `adapter_slots` folders of at most `adapter_rank` in all.
    `gpu_memory` is the share of a GPU's memory to use, `tensor_parallel` the number of GPUs that share the weights,
    `kv_cache` the number type of keys and values. `arguments` are passed to vLLM unchanged, after the others.
    """

    context_length: int | None = None
    dtype: str = "auto"
    lora: bool = False
    adapter_slots: int = 4
    adapter_rank: int = 32
    gpu_memory: float = 0.85
    tensor_parallel: int = 1
    kv_cache: str = "auto"
    arguments: Sequence[str] = ()


class VllmServer(ServerProcess):
    """Serves the model in `path` under `name`. Use as a context manager, or call `start` and `stop`.

    It listens on loopback and requires a key that only this program knows. `log` is a file.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        log: Path,
        settings: VllmSettings = VllmSettings(),  # immutable
        progress: Progress | None = None,
    ) -> None:
        if not (path / "config.json").is_file():
            raise ModelMissing(f"no model in {path}; get it with `localmem models pull`")
        on_gpu = _on_gpu()
        if on_gpu and settings.lora and settings.dtype == "float32":
            raise BadSettings("vLLM applies adapters on a GPU in bfloat16 or float16 alone; set llm.dtype to auto")
        with socket.socket() as probe:
            probe.bind((_HOST, 0))
            port: int = probe.getsockname()[1]
        self.name = name
        self.adapter_slots = settings.adapter_slots
        self.api_key = secrets.token_urlsafe(24)
        self.url = f"http://{_HOST}:{port}"
        how = ServerCommand(
            name=f"vLLM ({name})",
            command=_command(path, name, port, settings, on_gpu=on_gpu),
            health=f"{self.url}/health",
            log=log,
            environment=_environment(settings, self.api_key, on_gpu=on_gpu),
            stages=_STAGES,
            nice=0 if on_gpu else _CPU_NICENESS,
        )
        super().__init__(how, progress=progress)

    def __enter__(self) -> "VllmServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _command(path: Path, name: str, port: int, settings: VllmSettings, *, on_gpu: bool) -> list[str]:
    # `vllm serve` looks up a distribution called vllm, which a CPU build is not; the module works for both.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(path), "--served-model-name", name, "--host", _HOST, "--port", str(port)]
    # By default the weights' own format; float32 on a processor that does not compute in bfloat16
    on_slow_cpu = settings.dtype == "auto" and not on_gpu and fastest_cpu_dtype() == "float32"
    command += ["--dtype", "float32" if on_slow_cpu else settings.dtype]
    command += ["--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
    # Prompts that a user waits for come before background prompts.
    command += ["--scheduling-policy", "priority"]
    # Sampling follows the prompt; the model's own settings must not change it.
    command += ["--generation-config", "vllm"]
    # With free whitespace a small model may write blanks until its tokens run out.
    command += ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    # Without a limit a server does not start where a single prompt of the model's own length would not fit.
    if settings.context_length or on_gpu:
        command += ["--max-model-len", str(settings.context_length or "auto")]
    command += ["--kv-cache-dtype", settings.kv_cache]
    if on_gpu:
        command += ["--gpu-memory-utilization", f"{settings.gpu_memory:g}"]
        command += ["--tensor-parallel-size", str(settings.tensor_parallel)]
    else:
        # The smallest that its attention supports: with the default of 128 most of a short shared prefix is read again.
        command += ["--block-size", "32"]
        # A CPU build (0.32) crashes on a prompt with a seed that it reads in parts: it cannot rewind the generator.
        command += ["--no-enable-chunked-prefill"]
        # Compiling takes minutes there.
        command += ["--enforce-eager"]
    if settings.lora:
        # A CPU build (0.32) applies the last slot's adapter to requests without one when they share a step with a
        # request that has one: it looks their adapter up at index -1. So the last slot must stay empty there.
        slots = settings.adapter_slots if on_gpu else settings.adapter_slots + 1
        rank = next(rank for rank in _RANKS if rank >= settings.adapter_rank)
        command += ["--enable-lora", "--max-lora-rank", str(rank), "--max-loras", str(slots)]
    return [*command, *settings.arguments]


def _environment(settings: VllmSettings, api_key: str, *, on_gpu: bool) -> dict[str, str]:
    environment = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_API_KEY": api_key,
        "PYTHONUNBUFFERED": "1",
        # Where its processes connect to each other; by default it is the machine's outer address.
        "VLLM_HOST_IP": _HOST,
    }
    if settings.lora:
        environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    if not on_gpu:
        environment["VLLM_CPU_KVCACHE_SPACE"] = "1"  # GiB
        environment["GOMP_SPINCOUNT"] = _SPINS
        if core_count() <= _FEW_CORES:
            environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return environment


def _on_gpu() -> bool:
    """Whether there is a GPU, as this interpreter's torch sees it; vLLM runs in the same interpreter."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("vLLM needs torch; run scripts/setup, or set `llm.url` to a running server") from error
    return bool(torch.cuda.is_available())
