"""A vLLM server of our own: the command, the environment and the flags that serve one model on this machine.

Covers vLLM's command line for GPU and CPU builds; process.py keeps the process alive.
"""

import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localmem.errors import BadSettings, MissingExtra, ModelMissing
from localmem.llm.device import core_count, fastest_cpu_dtype
from localmem.llm.vllm.process import Progress, ServerCommand, ServerProcess

# Niceness of a server on a CPU: its threads fill the cores, and a question's embedding, which is short, would wait for
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
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
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

    `context_length` None is the model's own. `adapters` are LoRA folders served from the start, by served name; `lora`
    allows loading more at run time, `adapter_limit` in all, of rank `lora_rank` at most. `eager` None compiles on a GPU
    and not on a CPU, where compiling takes minutes. `gpu_memory` is the share of the GPU's memory to use,
    `cpu_cache_gib` the cache of a CPU build. `arguments` are passed to vLLM unchanged. `python` is an interpreter with
    vLLM installed.
    """

    context_length: int | None = None
    dtype: str = "auto"
    adapters: Mapping[str, Path] = field(default_factory=dict)
    lora: bool = False
    lora_rank: int = 32
    adapter_limit: int = 4
    eager: bool | None = None
    gpu_memory: float = 0.9
    cpu_cache_gib: int = 1
    host: str = "127.0.0.1"
    port: int | None = None
    arguments: Sequence[str] = ()
    python: str = sys.executable
    start_seconds: float = 900.0


class VllmServer(ServerProcess):
    """Serves the model in `path` under `name`. Use as a context manager, or call `start` and `stop`.

    It listens on loopback unless the settings name another host, and requires a key that only this program knows. `log`
    is a file.
    """

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        log: Path,
        settings: VllmSettings | None = None,
        progress: Progress | None = None,
    ) -> None:
        settings = settings or VllmSettings()
        if len(settings.adapters) > settings.adapter_limit:
            raise BadSettings(
                f"{len(settings.adapters)} adapters exceed the limit of {settings.adapter_limit}; raise the limit"
            )
        if not (path / "config.json").is_file():
            raise ModelMissing(f"no model in {path}; get it with `localmem models pull`")
        port = settings.port or _free_port(settings.host)
        self.name = name
        self.api_key = secrets.token_urlsafe(24)
        self.url = f"http://{_client_host(settings.host)}:{port}"
        self.adapters = tuple(settings.adapters)
        self.adapter_limit = settings.adapter_limit if settings.lora or settings.adapters else 0
        on_gpu = _on_gpu(settings)
        how = ServerCommand(
            name=f"vLLM ({name})",
            command=_command(path, name, port, settings, on_gpu=on_gpu),
            health=f"{self.url}/health",
            log=log,
            environment=_environment(settings, self.api_key, on_gpu=on_gpu),
            stages=_STAGES,
            start_seconds=settings.start_seconds,
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
    command = [settings.python, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(path), "--served-model-name", name, "--host", settings.host, "--port", str(port)]
    command += ["--dtype", _dtype(settings, on_gpu=on_gpu)]
    command += ["--enable-prompt-tokens-details", "--disable-uvicorn-access-log"]
    # Prompts that a user waits for come before background prompts.
    command += ["--scheduling-policy", "priority"]
    # Sampling follows the prompt; the model's own settings must not change it.
    command += ["--generation-config", "vllm"]
    # With free whitespace a small model may write blanks until its tokens run out.
    command += ["--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}']
    if settings.context_length:
        command += ["--max-model-len", str(settings.context_length)]
    if on_gpu:
        command += ["--gpu-memory-utilization", str(settings.gpu_memory)]
    else:
        # The smallest that its attention supports: with the default of 128 most of a short shared prefix is read again.
        command += ["--block-size", "32"]
        # A CPU build (0.32) crashes on a prompt with a seed that it reads in parts: it cannot rewind the generator.
        command += ["--no-enable-chunked-prefill"]
    if settings.eager if settings.eager is not None else not on_gpu:
        command.append("--enforce-eager")
    if settings.lora or settings.adapters:
        command += _lora_flags(settings, on_gpu=on_gpu)
    return [*command, *settings.arguments]


def _dtype(settings: VllmSettings, *, on_gpu: bool) -> str:
    """By default the weights' own format; float32 on a processor that does not compute in bfloat16."""
    on_slow_cpu = settings.dtype == "auto" and not on_gpu and fastest_cpu_dtype() == "float32"
    return "float32" if on_slow_cpu else settings.dtype


def _lora_flags(settings: VllmSettings, *, on_gpu: bool) -> list[str]:
    # A CPU build (0.32) applies the last slot's adapter to requests without one when they share a step with a request
    # that has one: it looks their adapter up at index -1. So the last slot must stay empty there.
    slots = settings.adapter_limit if on_gpu else settings.adapter_limit + 1
    flags = ["--enable-lora", "--max-lora-rank", str(settings.lora_rank), "--max-loras", str(slots)]
    if settings.adapters:
        flags += ["--lora-modules", *(f"{served}={folder}" for served, folder in settings.adapters.items())]
    return flags


def _environment(settings: VllmSettings, api_key: str, *, on_gpu: bool) -> dict[str, str]:
    environment = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_API_KEY": api_key,
        "PYTHONUNBUFFERED": "1",
    }
    if settings.host in _LOOPBACK:
        # Where its processes connect to each other; by default it is the machine's outer address.
        environment["VLLM_HOST_IP"] = "127.0.0.1"
    if settings.lora:
        environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    if not on_gpu:
        environment["VLLM_CPU_KVCACHE_SPACE"] = str(settings.cpu_cache_gib)
        environment["GOMP_SPINCOUNT"] = _SPINS
        if core_count() <= _FEW_CORES:
            environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return environment


def _on_gpu(settings: VllmSettings) -> bool:
    """Whether there is a GPU, as this interpreter's torch sees it; nearly always vLLM runs in the same one."""
    if settings.python != sys.executable and not Path(settings.python).is_file():
        raise BadSettings(f"no interpreter at {settings.python!r} to run vLLM; give the python of its environment")
    try:
        import torch
    except ImportError as error:
        raise MissingExtra("vLLM needs torch; run scripts/setup, or set `llm.url` to a running server") from error
    return bool(torch.cuda.is_available())


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _client_host(host: str) -> str:
    wildcards = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared, not bound
    address = wildcards.get(host, host)
    return f"[{address}]" if ":" in address else address
