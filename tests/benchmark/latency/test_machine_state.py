"""The machine's state: other processes are told from ours, memory and energy are measured, NVML is asked for GPUs."""

# ruff: noqa: N802, N815  # the names of NVML

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from localmem.benchmark.latency import machine_state
from localmem.benchmark.latency.gpu import Gpu, Gpus
from localmem.benchmark.latency.machine_state import Seen, State, Watch, look, marks

MB = 2**20


class NVMLError(Exception):
    """What the library raises."""


class Driver(ModuleType):
    """Stands in for pynvml: two cards; what is set to None is not known to the card."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1
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
        self.milliwatts = 50_000
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

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        raise NVMLError("not supported")

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return 1410

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return self.milliwatts

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


QUIET = State(1.0, 4, 0.1, 0.0, 0.0, 0.2, 3000.0, 8000.0, ())
SEEN = Seen(10.0, 4, 3.0, 0.1, 0.0, 900.0, None, None, None, 3000.0, 0, 0.0, 0.0, ())
CARD = Gpu(0, "A card", "580.1", 0.0, 1000.0, 100.0, 40.0, 50.0, 1410.0, (), 0)


def test_what_nvml_tells_of_each_card(driver: Driver) -> None:
    driver.reasons = 0x1 | 0x4 | 0x20
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    driver.pids = [1, 77, gone.pid]
    first, second = Gpus().look({77})
    assert (first.index, first.name, first.driver, first.used) == (0, "A card", "580.1", 0.37)
    assert (first.memory_mb, first.memory_used_mb, second.memory_used_mb) == (1000, 100, 300)
    assert (first.temperature_c, first.power_w, first.clock_mhz) == (None, 50, 1410)
    assert (first.held_down, second.held_down) == ((), ("power cap", "heat"))
    assert first.others == 1, "ours and one that is not there are no others"


def test_sums_over_the_cards(driver: Driver) -> None:
    gpus = Gpus()
    assert gpus.memory_used_mb() == 400
    assert gpus.power_w() == 100
    before = gpus.energy_j()
    assert before == 4.0
    assert gpus.energy_j() == before + 1.0
    driver.reasons = 0x80
    assert gpus.held_down() == {"GPU 1: power brake"}


@pytest.mark.parametrize("named, kept", [("1", [1]), ("GPU-00", [0]), ("0,1", [0, 1]), ("MIG-7", [0, 1])])
def test_only_the_cards_that_are_visible(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, named: str, kept: list[int]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert [gpu.index for gpu in Gpus().look(())] == kept


@pytest.mark.parametrize("library", [True, False])
def test_no_driver_or_no_library_is_no_card(no_driver: None, monkeypatch: pytest.MonkeyPatch, *, library: bool) -> None:
    if not library:
        monkeypatch.setitem(sys.modules, "pynvml", None)
    gpus = Gpus()
    assert gpus.look(()) == ()
    assert (gpus.memory_used_mb(), gpus.energy_j(), gpus.power_w(), gpus.held_down()) == (None, None, None, set())


def test_a_watch_takes_peaks_and_the_energy_counter(driver: Driver) -> None:
    with Watch(every=0.01) as watch:
        block = bytearray(64 * MB)
        block[::4096] = b"x" * len(block[::4096])  # touched, so that it is resident
        driver.used[0] = 700 * MB
        driver.reasons = 0x40
        time.sleep(0.1)
        driver.used[0] = 0
    seen = watch.seen
    assert seen.device_peak_mb == 1000
    assert seen.energy_j == 1.0
    assert seen.host_peak_mb > 64
    assert seen.gpus_held_down == ("GPU 1: heat (hardware)",)


def test_a_card_without_a_counter_has_its_power_added_up(driver: Driver) -> None:
    """100 W between the first look and the last, which lie around the sleep and inside the seconds."""
    driver.millijoules = None
    with Watch(every=0.01) as watch:
        time.sleep(0.2)
    assert watch.seen.energy_j is not None
    assert 20 <= watch.seen.energy_j <= 100 * (watch.seen.seconds + 0.01)


def test_without_a_driver_nothing_is_said_of_a_card(no_driver: None) -> None:
    with Watch() as watch:
        pass
    assert (watch.seen.device_peak_mb, watch.seen.energy_j, watch.seen.gpus_held_down) == (None, None, ())


def test_a_watch_is_asked_after_its_end(no_driver: None) -> None:
    with Watch() as watch, pytest.raises(RuntimeError, match="has not ended"):
        watch.seen  # noqa: B018  # raises


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


def test_the_work_of_a_child_is_ours(no_driver: None, child: subprocess.Popen[bytes]) -> None:
    with Watch() as watch:
        time.sleep(0.5)
    assert watch.seen.ours_cores > 0.1


def test_the_work_of_a_child_that_ended_is_ours(no_driver: None) -> None:
    with Watch() as watch:
        spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
        subprocess.run([sys.executable, "-c", spin], check=True)
    assert watch.seen.ours_cores * watch.seen.seconds >= 0.25


def test_the_work_of_others_is_told_apart(
    no_driver: None, child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child is disowned: our tree is this process alone."""
    alone = psutil.Process()
    monkeypatch.setattr(machine_state, "_tree", lambda: [alone])
    found = look(0.5)
    assert found.others_cores > 0.1
    assert found.seconds >= 0.5
    assert found.cores >= 1
    assert found.gpus == ()


def test_a_quiet_machine_has_no_marks() -> None:
    assert marks(QUIET, SEEN, QUIET) == []
    assert marks(replace(QUIET, gpus=(CARD,)), SEEN, QUIET) == []


def test_each_trouble_is_a_sentence() -> None:
    busy = replace(QUIET, others_cores=0.5, gpus=(replace(CARD, others=2), replace(CARD, index=1, used=0.37)))
    seen = replace(
        SEEN,
        others_cores=1.24,
        stolen_cores=0.2,
        throttles=3,
        quota_s=1.5,
        swapped_mb=12.0,
        gpus_held_down=("GPU 0: heat",),
    )
    assert marks(busy, seen, replace(QUIET, others_cores=0.41)) == [
        "other processes used so many of 4 cores: 0.5 before it began, 1.2 while it ran, 0.4 after it had ended",
        "the host gave CPU time to other guests: 5% while it ran",
        "the clock was held down on GPU 0: heat",
        "CPU cores were slowed by heat 3 times",
        "a CPU limit held this container back for 1.5 of 10.0 s",
        "the machine swapped 12 MB",
        "2 other processes held GPU 0 before it began",
        "GPU 1 was at work before it began: 37%",
    ]


def test_what_the_kernel_tells_in_files(no_driver: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores' counters, a container's limit and a processor's energy, each of them growing once."""
    for core in (0, 1):
        (tmp_path / f"cpu{core}/thermal_throttle").mkdir(parents=True)
        (tmp_path / f"cpu{core}/thermal_throttle/core_throttle_count").write_text("4\n")
    for name, kind in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:1", "psys")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "name").write_text(f"{kind}\n")
        (tmp_path / name / "energy_uj").write_text("1000000\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 5\nthrottled_usec 250000\n")
    monkeypatch.setattr(machine_state, "_CPUS", tmp_path)
    monkeypatch.setattr(machine_state, "_RAPL", tmp_path)
    monkeypatch.setattr(machine_state, "_QUOTAS", tmp_path / "cpu.stat")
    with Watch() as watch:
        (tmp_path / "cpu1/thermal_throttle/core_throttle_count").write_text("6\n")
        (tmp_path / "intel-rapl:0/energy_uj").write_text("3500000\n")
        (tmp_path / "cpu.stat").write_text("usage_usec 5\nthrottled_usec 1000000\n")
    assert (watch.seen.throttles, watch.seen.cpu_energy_j, watch.seen.quota_s) == (2, 2.5, 0.75)
