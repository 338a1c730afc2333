"""A vLLM server of our own, started, awaited, watched, restarted once and ended with this program.

ServerProcess works with a command, a health address and a log file, and does not depend on what is served; VllmServer
gives it vLLM's command line and environment, for GPU and CPU builds.
"""

import atexit
import logging
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx

from localmem.errors import LLMUnavailable, MissingExtra, ModelMissing
from localmem.llm.device import core_count, fastest_cpu_dtype
from localmem.llm.vllm import guard

logger = logging.getLogger(__name__)

# How a server is kept alive. One thread, the watcher, starts the guard with the server under it, waits for readiness,
# waits for the end, and decides about a restart. It makes the process itself, because Linux sends the death signal
# (see guard.py) when the thread that made a child ends, not when its process does: started from a request's thread, the
# server would be killed as soon as that thread finished. All other threads only read the state under the condition.
#
# When a restart helps. A server that has served before and died (out of memory, a driver's error) is started once more;
# a server that never became ready would fail in the same way again, so its log is reported instead. After
# _STABLE_SECONDS of service a death counts as the first again, so that a server may die once a day for ever, but
# never restarts in a loop.
#
# Why a health address and not the exit code. A model server that hangs in a GPU kernel lives and answers nothing.
# `ensure_ready` is called by requests that got no answer: it asks the health address until _DEAF_SECONDS have
# passed and then ends the process, which the watcher treats like any other death. `starts` tells whether another thread
# has brought a restart about meanwhile; without that check the fresh server would be killed in place of the deaf one.
#
# How it ends. Closing the guard's standard input is the request to end, so the same thing happens on `stop`, on a
# regular exit (atexit) and when this program is killed. A server that is still loading is killed at once: it does
# not react to a request to end before it has loaded, and has no work to finish.
#
# The log is made by us, mode 0600, for prompts may appear in it; the one before is renamed to *.before, because the
# reason of a death is in there when the restart succeeds. `-I` keeps PYTHONPATH and the current folder from
# replacing a module of the standard library in the guard.

Progress = Callable[[str, float], None]

_POLL_SECONDS = 0.25
_STABLE_SECONDS = 600.0
_DEAF_SECONDS = 30.0
_KILL_SECONDS = 5.0  # for the guard to kill what did not end
_TAIL_BYTES = 16384
_TAIL_LINES = 3
_TAIL_WIDTH = 300


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How to start a server and see how it is.

    `health` answers 200 once it serves. `stages` are patterns of its log with a description for the user, in the order
    of a start. `environment` is added to this program's. It is killed `grace_seconds` after a request to end. `nice` is
    added to its niceness.
    """

    name: str
    command: Sequence[str]
    health: str
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stages: Sequence[tuple[str, str]] = ()
    start_seconds: float = 900.0
    grace_seconds: float = 20.0
    nice: int = 0


class ServerProcess:
    """Keeps one server running. All methods are safe to call from any thread."""

    def __init__(self, how: ServerCommand, *, progress: Progress | None = None) -> None:
        self._how = how
        self._progress = progress or (lambda _stage, _seconds: None)
        self._changed = threading.Condition()
        self._state: Literal["new", "starting", "ready", "dead", "stopped"] = "new"
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None
        self.starts = 0  # how often it was started; what an earlier process had loaded at run time is lost
        self._timed_out = False
        self._reason = ""

    def start(self, *, wait: bool = True) -> None:
        """Starts the server and, with `wait`, returns when it serves. Raises LLMUnavailable with the end of its log."""
        with self._changed:
            is_new = self._state == "new"
            self._state = "starting" if is_new else self._state
        if is_new:
            atexit.register(self.stop)
            self._watcher = threading.Thread(target=self._watch, name=f"{self._how.name}-watcher", daemon=True)
            self._watcher.start()
        if wait:
            self.ensure_ready()

    def ensure_ready(self) -> None:
        """Waits while the server starts or restarts. Raises LLMUnavailable when it has ended for good."""
        deaf_since: float | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._state != "starting")
                if self._state == "dead":
                    raise LLMUnavailable(self._reason)
                if self._state in ("new", "stopped"):
                    raise LLMUnavailable(f"the {self._how.name} server was stopped; start it again")
                starts = self.starts
            if self._is_healthy():
                return
            deaf_since = deaf_since or time.monotonic()
            if time.monotonic() - deaf_since > _DEAF_SECONDS:
                self._end_deaf(starts)
                deaf_since = None
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        with self._changed:
            if self._state in ("new", "stopped"):
                return
            self._end(at_once=self._state == "starting")
            self._state = "stopped"
            self._changed.notify_all()
        if self._watcher:
            self._watcher.join(self._how.grace_seconds + _KILL_SECONDS)
        if self._process and self._process.poll() is None:
            self._process.kill()
        atexit.unregister(self.stop)

    def _watch(self) -> None:
        restarts = 0
        while True:
            ready_for = self._run_once()
            with self._changed:
                if self._state == "stopped":
                    return
                restarts = 0 if ready_for > _STABLE_SECONDS else restarts
                restart = restarts == 0 and ready_for > 0
                self._reason = self._death_report()
                self._state = "starting" if restart else "dead"
                self._changed.notify_all()
            if not restart:
                logger.error("%s", self._reason)
                return
            restarts += 1
            logger.warning("%s; restarting it", self._reason)

    def _run_once(self) -> float:
        with self._changed:
            if self._state == "stopped":
                return 0.0
            self._process = process = self._spawn()
            self.starts += 1
        ready = time.monotonic() if self._await_ready(process) else None
        if ready is None:
            self._end(at_once=True)
        process.wait()
        self._end()
        return time.monotonic() - ready if ready is not None else 0.0

    def _spawn(self) -> "subprocess.Popen[bytes]":
        how = self._how
        how.log.parent.mkdir(parents=True, exist_ok=True)
        if how.log.exists():
            how.log.replace(how.log.with_name(f"{how.log.name}.before"))
        descriptor = os.open(how.log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-I", guard.__file__, str(how.grace_seconds), str(how.nice), *how.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **how.environment},
                start_new_session=True,
            )

    def _await_ready(self, process: "subprocess.Popen[bytes]") -> bool:
        start = time.monotonic()
        while process.poll() is None and self._state != "stopped":
            seconds = time.monotonic() - start
            if self._is_healthy():
                with self._changed:
                    if self._state == "starting":
                        self._state = "ready"
                    self._changed.notify_all()
                self._progress("ready", seconds)
                return True
            if seconds > self._how.start_seconds:
                self._timed_out = True
                return False
            log = _tail(self._how.log)
            stages = [stage for pattern, stage in self._how.stages if re.search(pattern, log)]
            self._progress(stages[-1] if stages else "starting", seconds)
            time.sleep(_POLL_SECONDS)
        return False

    def _is_healthy(self) -> bool:
        try:
            return httpx.get(self._how.health, timeout=5.0, trust_env=False).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _end_deaf(self, starts: int) -> None:
        """Ends a server that does not answer, unless another was started meanwhile; the watcher restarts it."""
        with self._changed:
            if self.starts == starts and self._process and self._process.poll() is None:
                logger.warning("the %s server runs but has not answered for %.0f s", self._how.name, _DEAF_SECONDS)
                self._state = "starting"
                self._end()

    def _end(self, *, at_once: bool = False) -> None:
        """Closes the guard's input, which ends everything under it."""
        stdin = self._process.stdin if self._process else None
        if stdin is None or stdin.closed:
            return
        with suppress(BrokenPipeError):  # the guard has already ended
            if at_once:
                stdin.write(b"!")
            stdin.close()

    def _death_report(self) -> str:
        code = self._process.returncode if self._process else None
        how = f"was not ready after {self._how.start_seconds:.0f} s" if self._timed_out else f"ended with code {code}"
        log = self._how.log
        return f"the {self._how.name} server {how}; its log says: {_summarize(_tail(log))} (whole log: {log})"


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _summarize(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b\w*(Error|Exception)\b.*:", line)]
    last = list(dict.fromkeys(errors or lines))[-_TAIL_LINES:]
    return " | ".join(line[-_TAIL_WIDTH:] for line in last) or "nothing"


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
    gpu_memory: float = 0.9
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
        with socket.socket() as probe:
            probe.bind((_HOST, 0))
            port: int = probe.getsockname()[1]
        self.name = name
        self.adapter_slots = settings.adapter_slots
        self.api_key = secrets.token_urlsafe(24)
        self.url = f"http://{_HOST}:{port}"
        on_gpu = _on_gpu()
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
