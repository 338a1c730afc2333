"""The machine's state: the load of others, peak memory, energy, and what slowed the machine."""

# ruff: noqa: N802, N815  # the names of NVML

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest

from localmem.reporting import provenance
from localmem.reporting.provenance import Gpus, GpuState, MachineMonitor, MachineUsage, marks, observe

MB = 2**20


class NVMLError(Exception):
    """What the library raises."""


class Driver(ModuleType):
    """Replaces pynvml: two cards; a value of None is not supported by the card."""

    NVMLError = NVMLError
    nvmlClocksEventReasonSwPowerCap = 0x4
    nvmlClocksEventReasonHwSlowdown = 0x8
    nvmlClocksEventReasonSwThermalSlowdown = 0x20
    nvmlClocksEventReasonHwThermalSlowdown = 0x40
    nvmlClocksEventReasonHwPowerBrakeSlowdown = 0x80

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.absent = False
        self.used = [100 * MB, 300 * MB]
        self.millijoules: list[int] | None = [1_000, 2_000]
        self.reasons = 0x1  # idle
        self.pids: list[int] = []

    def nvmlInit(self) -> None:
        if self.absent:
            raise NVMLError("no driver")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{handle}{handle}".encode()

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"A card"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=1000 * MB, used=self.used[handle])

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=37)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if self.millijoules is None:
            raise NVMLError("not supported")
        self.millijoules[handle] += 500
        return self.millijoules[handle]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return self.reasons if handle == 1 else 0

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid) for pid in self.pids]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fake = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.fixture
def no_driver(driver: Driver) -> None:
    driver.absent = True


QUIET = MachineUsage(10.0, 4, 3.0, 0.1, 0.0, 900.0, None, None, 0, 0.0, 0.0, (), ())
CARD = GpuState(0, "A card", "580.1", 0.0, 1000.0, 0)


def test_the_state_of_each_card(driver: Driver) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    driver.pids = [1, 77, process.pid]
    first, second = Gpus().states({77})
    assert (first.index, first.name, first.driver, first.used) == (0, "A card", "580.1", 0.37)
    assert (first.memory_mb, second.memory_mb) == (1000, 1000)
    assert first.others == 1, "neither ours nor a process that has ended"


def test_sums_over_the_cards(driver: Driver) -> None:
    gpus = Gpus()
    assert gpus.memory_used_mb() == 400
    before = gpus.energy_j()
    assert before == 4.0
    assert gpus.energy_j() == before + 1.0
    driver.reasons = 0x1 | 0x4 | 0x80
    assert gpus.slowdowns() == {"GPU 1, power cap", "GPU 1, power brake"}


@pytest.mark.parametrize("names, visible", [("1", [1]), ("GPU-00", [0]), ("0,1", [0, 1]), ("MIG-7", [0, 1])])
def test_only_visible_cards_count(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, names: str, visible: list[int]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", names)
    assert [gpu.index for gpu in Gpus().states(())] == visible


@pytest.mark.parametrize("library", [True, False])
def test_without_driver_or_library_there_are_no_cards(
    no_driver: None, monkeypatch: pytest.MonkeyPatch, *, library: bool
) -> None:
    if not library:
        monkeypatch.setitem(sys.modules, "pynvml", None)
    gpus = Gpus()
    assert (gpus.states(()), gpus.memory_used_mb(), gpus.energy_j(), gpus.slowdowns()) == ((), None, None, set())


def test_the_monitor_records_peaks_and_energy(driver: Driver) -> None:
    with MachineMonitor(interval=0.01) as monitor:
        block = bytearray(64 * MB)
        block[::4096] = b"x" * len(block[::4096])  # touched, so that it is resident
        driver.used[0] = 700 * MB
        driver.reasons = 0x40
        time.sleep(0.1)
        driver.used[0] = 0
    usage = monitor.usage
    assert usage.device_peak_mb == 1000
    assert usage.energy_j == 1.0
    assert usage.host_peak_mb > 64
    assert usage.slowed_gpus == ("GPU 1, heat (hardware)",)
    assert [gpu.index for gpu in usage.gpus] == [0, 1]


def test_unsupported_queries_are_none(driver: Driver) -> None:
    driver.millijoules = None
    assert Gpus().energy_j() is None


def test_without_a_driver_no_gpu_figure_is_reported(no_driver: None) -> None:
    with MachineMonitor() as monitor:
        pass
    usage = monitor.usage
    assert (usage.device_peak_mb, usage.energy_j, usage.slowed_gpus, usage.gpus) == (None, None, (), ())


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


def test_the_work_of_a_child_is_ours(no_driver: None, child: subprocess.Popen[bytes]) -> None:
    assert observe(0.5).ours_cores > 0.1


def test_the_work_of_a_child_that_has_ended_is_ours(no_driver: None) -> None:
    with MachineMonitor() as monitor:
        spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
        subprocess.run([sys.executable, "-c", spin], check=True)
    assert monitor.usage.ours_cores * monitor.usage.seconds >= 0.25


def test_the_work_of_others_is_counted_separately(
    no_driver: None, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child counts as another's: our tree is this process alone."""
    process = psutil.Process()
    monkeypatch.setattr(provenance, "_process_tree", lambda: [process])
    usage = observe(0.5)
    assert usage.others_cores > 0.1
    assert usage.seconds >= 0.5
    assert usage.cores >= 1


def test_a_quiet_machine_has_no_marks() -> None:
    assert marks(QUIET, QUIET, QUIET) == []
    assert marks(replace(QUIET, gpus=(CARD,)), QUIET, QUIET) == []


def test_each_problem_is_a_sentence() -> None:
    before = replace(QUIET, others_cores=0.5, gpus=(replace(CARD, others=2), replace(CARD, index=1, used=0.37)))
    during = replace(
        QUIET,
        others_cores=1.24,
        stolen_cores=0.2,
        throttles=3,
        quota_s=1.5,
        swapped_mb=12.0,
        slowed_gpus=("GPU 0, heat",),
    )
    assert marks(before, during, replace(QUIET, others_cores=0.41)) == [
        "other processes used 0.5 before, 1.2 during, 0.4 after of 4 cores",
        "the host gave cores to other guests: 0.2 during",
        "the clock was slowed: GPU 0, heat",
        "heat slowed CPU cores 3 times",
        "a CPU limit stopped this container for 1.5 of 10.0 s",
        "the machine swapped 12 MB",
        "2 other processes held GPU 0 before",
        "GPU 1 was 37% busy before",
    ]


def test_kernel_counters(no_driver: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores' throttle counters and a container's limit, each of which grows once."""
    for core in (0, 1):
        (tmp_path / f"cpu{core}/thermal_throttle").mkdir(parents=True)
        (tmp_path / f"cpu{core}/thermal_throttle/core_throttle_count").write_text("4\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 5\nthrottled_usec 250000\n")
    monkeypatch.setattr(provenance, "_THROTTLE_COUNTS", tmp_path)
    monkeypatch.setattr(provenance, "_CGROUP_CPU", tmp_path / "cpu.stat")
    with MachineMonitor() as monitor:
        (tmp_path / "cpu1/thermal_throttle/core_throttle_count").write_text("6\n")
        (tmp_path / "cpu.stat").write_text("usage_usec 5\nthrottled_usec 1000000\n")
    assert (monitor.usage.throttles, monitor.usage.quota_s) == (2, 0.75)
