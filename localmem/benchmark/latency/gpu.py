"""The GPUs of this machine as NVIDIA's driver tells of them: use, memory, energy, and why a clock is held down.

Without the library nvidia-ml-py or without a driver there are none. Knows no benchmark.
"""

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import psutil  # type: ignore[import-untyped]  # it ships no types

Value = TypeVar("Value")

# Why a clock is below what was asked of it, by the names that NVML has for its bits. Idling and chosen clocks are not
# among them.
_REASONS = {
    "nvmlClocksEventReasonSwPowerCap": "power cap",
    "nvmlClocksEventReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksEventReasonSwThermalSlowdown": "heat",
    "nvmlClocksEventReasonHwThermalSlowdown": "heat (hardware)",
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": "power brake",
}
_MB = 2**20


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU at one moment; None is what its driver does not tell.

    `used` is the share of the last moments in which it computed, `others` the processes on it that are not ours, as far
    as this process can see them.
    """

    index: int
    name: str
    driver: str
    used: float | None
    memory_mb: float | None
    memory_used_mb: float | None
    temperature_c: float | None
    power_w: float | None
    clock_mhz: float | None
    held_down: tuple[str, ...]
    others: int


class Gpus:
    """All that CUDA_VISIBLE_DEVICES leaves; numbers are sums over them, None where there is none or none tells."""

    def __init__(self) -> None:
        self._nvml = _nvml()
        self._handles = _visible(self._nvml) if self._nvml else {}

    def look(self, ours: Collection[int]) -> tuple[Gpu, ...]:
        """Each of them now; `ours` are the ids of our processes."""
        return tuple(self._gpu(index, handle, ours) for index, handle in self._handles.items())

    def memory_used_mb(self) -> float | None:
        """What all processes together hold."""
        return self._sum(lambda nvml, handle: float(nvml.nvmlDeviceGetMemoryInfo(handle).used) / _MB)

    def energy_j(self) -> float | None:
        """A counter that only grows; two readings tell what was used between."""
        return self._sum(lambda nvml, handle: float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000)

    def power_w(self) -> float | None:
        """What they draw now."""
        return self._sum(_power)

    def held_down(self) -> set[str]:
        """Which of them runs slower than it should, and why."""
        return {f"GPU {index}: {reason}" for index, handle in self._handles.items() for reason in self._reasons(handle)}

    def _gpu(self, index: int, handle: object, ours: Collection[int]) -> Gpu:
        memory = self._ask(lambda nvml: nvml.nvmlDeviceGetMemoryInfo(handle))
        return Gpu(
            index=index,
            name=_text(self._ask(lambda nvml: nvml.nvmlDeviceGetName(handle))),
            driver=_text(self._ask(lambda nvml: nvml.nvmlSystemGetDriverVersion())),
            used=self._ask(lambda nvml: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            memory_mb=memory.total / _MB if memory else None,
            memory_used_mb=memory.used / _MB if memory else None,
            temperature_c=self._ask(
                lambda nvml: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            ),
            power_w=self._ask(lambda nvml: _power(nvml, handle)),
            clock_mhz=self._ask(lambda nvml: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))),
            held_down=self._reasons(handle),
            others=self._others(handle, ours),
        )

    def _reasons(self, handle: object) -> tuple[str, ...]:
        bits = self._ask(lambda nvml: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))) or 0
        return tuple(word for name, word in _REASONS.items() if bits & getattr(self._nvml, name))

    def _others(self, handle: object, ours: Collection[int]) -> int:
        """A container sees the host's process ids: those that do not exist here are nobody's we can name."""
        found = self._ask(lambda nvml: [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]) or []
        return sum(pid not in ours and psutil.pid_exists(pid) for pid in found)

    def _sum(self, of: Callable[[Any, object], float]) -> float | None:
        values = [self._ask(_asked(of, handle)) for handle in self._handles.values()]
        told = [value for value in values if value is not None]
        return sum(told) if told else None

    def _ask(self, question: Callable[[Any], Value]) -> Value | None:
        """A card need not know every answer."""
        if self._nvml is None:
            return None
        try:
            return question(self._nvml)
        except self._nvml.NVMLError:
            return None


def _asked(of: Callable[[Any, object], float], handle: object) -> Callable[[Any], float]:
    return lambda nvml: of(nvml, handle)


def _power(nvml: Any, handle: object) -> float:  # noqa: ANN401  # an untyped module
    return float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1000


def _nvml() -> ModuleType | None:
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver
        return None
    found: ModuleType = pynvml
    return found


def _visible(nvml: Any) -> dict[int, object]:  # noqa: ANN401  # an untyped module
    """Handles by the driver's index. What CUDA_VISIBLE_DEVICES names otherwise than by index or UUID hides nothing."""
    handles = {index: nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())}
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    kept = {
        index: handle
        for index, handle in handles.items()
        if str(index) in named or _text(nvml.nvmlDeviceGetUUID(handle)) in named
    }
    return kept or handles


def _text(told: str | bytes | None) -> str:
    """Older bindings tell names in bytes."""
    return told.decode() if isinstance(told, bytes) else told or "unknown"
