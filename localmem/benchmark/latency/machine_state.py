"""How busy and how throttled the machine is, before a point, while it runs and after it; peak memory and energy.

What other processes take is told from CPU times, not from the load average, which counts our own work and remembers the
minute before. Knows no requests; whatever is not told by this kernel or driver is None.
"""

import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil  # type: ignore[import-untyped]  # it ships no types

from localmem.benchmark.latency.gpu import Gpu, Gpus

BUSY = 0.1  # of all cores, or of a GPU's time: more than this in other hands, and times are not ours alone
STOLEN = 0.02  # of all cores, given to other guests of the same host
_MB = 2**20
_SELDOM = 5.0  # seconds between looks that disturb what is measured: at all of /proc, at the clocks of all cores
_CPUS = Path("/sys/devices/system/cpu")
_QUOTAS = Path("/sys/fs/cgroup/cpu.stat")
_RAPL = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class State:
    """The machine at rest, over the last `seconds`. `others_cores` is what processes that are not ours used of `cores`.

    `ours` are this process and all that it started, the backbone's server too; a server that somebody else started is
    another's. `stolen_cores` is what the host gave to other guests.
    """

    seconds: float
    cores: int
    ours_cores: float
    others_cores: float
    stolen_cores: float
    load_average: float
    clock_mhz: float | None
    free_mb: float
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen while a point ran.

    `host_peak_mb` is the resident memory of our processes (what they share is counted in each), `device_peak_mb` what
    all processes held of the GPUs. `energy_j` is the GPUs', `cpu_energy_j` the processors' (RAPL). `throttles` counts
    how often a core was held down by heat, `quota_s` is for how long a container's CPU limit held us back.
    """

    seconds: float
    cores: int
    ours_cores: float
    others_cores: float
    stolen_cores: float
    host_peak_mb: float
    device_peak_mb: float | None
    energy_j: float | None
    cpu_energy_j: float | None
    clock_mhz: float | None
    throttles: int | None
    quota_s: float | None
    swapped_mb: float
    gpus_held_down: tuple[str, ...]


def look(seconds: float = 1.0) -> State:
    """The machine now; waits for `seconds` to see who works."""
    begun = _Clock.now()
    time.sleep(seconds)
    spent = _Clock.now().since(begun)
    return State(
        seconds=round(spent.seconds, 2),
        cores=_cores(),
        ours_cores=spent.ours,
        others_cores=spent.others,
        stolen_cores=spent.stolen,
        load_average=round(os.getloadavg()[0], 2),
        clock_mhz=_clock_mhz(),
        free_mb=round(psutil.virtual_memory().available / _MB),
        gpus=Gpus().look({process.pid for process in _tree()}),
    )


def marks(before: State, seen: Seen, after: State) -> list[str]:
    """Why not to trust what was measured in between, one plain sentence each; none on a quiet machine."""
    return [
        *_others(before, seen, after),
        *_held_down(seen),
        *(mark for gpu in before.gpus for mark in _shared(gpu)),
    ]


class Watch:
    """Looks at memory, clocks and energy while the `with` lasts: as it begins and ends, and in between from a thread.

    Afterwards `seen` tells what there was to see; it is an error to ask before.
    """

    def __init__(self, every: float = 0.25) -> None:
        self._every = every
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="localmem-watch", daemon=True)
        self._gpus = Gpus()
        self._looks = _Looks()
        self._due, self._tree = 0.0, list[psutil.Process]()
        self._seen: Seen | None = None

    def __enter__(self) -> "Watch":
        self._begun = _Counters.now(self._gpus)
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._look()
        self._seen = self._looks.seen(self._begun, _Counters.now(self._gpus))

    @property
    def seen(self) -> Seen:
        """What was seen from beginning to end."""
        if self._seen is None:
            raise RuntimeError("the watch has not ended; ask after the `with`")
        return self._seen

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self._look()

    def _look(self) -> None:
        if time.monotonic() >= self._due:
            self._due, self._tree = time.monotonic() + _SELDOM, _tree()
            self._looks.take_clock()
        self._looks.take(self._tree, self._gpus)


# -- CPU time ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Spent:
    """Cores in use, on the mean, over `seconds`."""

    seconds: float
    ours: float
    others: float
    stolen: float


@dataclass(frozen=True, slots=True)
class _Clock:
    """CPU seconds since the machine started: of all, of our processes, and given to other guests."""

    at: float
    all: float
    ours: float
    stolen: float

    @classmethod
    def now(cls) -> "_Clock":
        times = psutil.cpu_times()
        busy = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
        return cls(time.monotonic(), busy, sum(map(_cpu_seconds, _tree())), getattr(times, "steal", 0.0))

    def since(self, begun: "_Clock") -> _Spent:
        seconds = max(self.at - begun.at, 1e-9)
        ours = (self.ours - begun.ours) / seconds
        others = (self.all - begun.all) / seconds - ours  # counted in ticks of 10 ms, so it may come out below zero
        return _Spent(
            seconds,
            round(max(ours, 0.0), 3),
            round(max(others, 0.0), 3),
            round((self.stolen - begun.stolen) / seconds, 3),
        )


def _tree() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def _cpu_seconds(process: psutil.Process) -> float:
    """Its own, and what children spent that have ended."""
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.Error:
        return 0.0


def _cores() -> int:
    return psutil.cpu_count() or 1


# -- while a point runs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Counters:
    """All that only grows."""

    clock: _Clock
    device_j: float | None
    cpu_j: float | None
    throttles: int | None
    quota_s: float | None
    swapped: int

    @classmethod
    def now(cls, gpus: Gpus) -> "_Counters":
        swap = psutil.swap_memory()
        return cls(_Clock.now(), gpus.energy_j(), _rapl_j(), _throttles(), _quota_s(), swap.sin + swap.sout)


class _Looks:
    """What the thread saw so far."""

    def __init__(self) -> None:
        self._host = 0.0
        self._device: float | None = None
        self._watts: list[tuple[float, float]] = []
        self._clocks: list[float] = []
        self._held_down: set[str] = set()

    def take(self, tree: Iterable[psutil.Process], gpus: Gpus) -> None:
        self._host = max(self._host, sum(map(_resident_mb, tree)))
        if (used := gpus.memory_used_mb()) is not None:
            self._device = max(self._device or 0.0, used)
        if (watts := gpus.power_w()) is not None:
            self._watts.append((time.monotonic(), watts))
        self._held_down |= gpus.held_down()

    def take_clock(self) -> None:
        if (clock := _clock_mhz()) is not None:
            self._clocks.append(clock)

    def seen(self, begun: _Counters, ended: _Counters) -> Seen:
        spent = ended.clock.since(begun.clock)
        counted = _more(begun.device_j, ended.device_j)
        return Seen(
            seconds=round(spent.seconds, 2),
            cores=_cores(),
            ours_cores=spent.ours,
            others_cores=spent.others,
            stolen_cores=spent.stolen,
            host_peak_mb=round(self._host, 1),
            device_peak_mb=None if self._device is None else round(self._device, 1),
            energy_j=self._joules() if counted is None else round(counted, 1),
            cpu_energy_j=_more(begun.cpu_j, ended.cpu_j),
            clock_mhz=round(sum(self._clocks) / len(self._clocks)) if self._clocks else None,
            throttles=None if begun.throttles is None else (ended.throttles or 0) - begun.throttles,
            quota_s=_more(begun.quota_s, ended.quota_s),
            swapped_mb=round((ended.swapped - begun.swapped) / _MB, 1),
            gpus_held_down=tuple(sorted(self._held_down)),
        )

    def _joules(self) -> float | None:
        """Power over time by the trapezium rule, for cards that count no energy."""
        if len(self._watts) < 2:
            return None
        steps = zip(self._watts, self._watts[1:], strict=False)
        return round(sum((after - before) * (low + high) / 2 for (before, low), (after, high) in steps), 1)


def _more(before: float | None, after: float | None) -> float | None:
    """A counter that began anew in between tells nothing."""
    return None if before is None or after is None or after < before else round(after - before, 2)


def _resident_mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / _MB
    except psutil.Error:
        return 0.0


# -- what kernels tell ---------------------------------------------------------------------------------------------


def _clock_mhz() -> float | None:
    """Of all cores, the mean."""
    try:
        found = psutil.cpu_freq()
    except OSError:  # some virtual machines list a clock and refuse to tell it
        return None
    return round(found.current) if found and found.current else None


def _throttles() -> int | None:
    """How often cores were slowed by heat, since the machine started."""
    counts = [
        int(text) for path in _CPUS.glob("cpu[0-9]*/thermal_throttle/core_throttle_count") if (text := _read(path))
    ]
    return sum(counts) if counts else None


def _quota_s() -> float | None:
    """For how long a CPU limit (cgroup v2) held this container back."""
    lines = dict(line.split(" ", 1) for line in _read(_QUOTAS).splitlines())
    return int(lines["throttled_usec"]) / 1e6 if "throttled_usec" in lines else None


def _rapl_j() -> float | None:
    """The processors' packages; most systems show it to root alone."""
    texts = [_read(path / "energy_uj") for path in _RAPL.glob("intel-rapl:[0-9]") if _read(path / "name") != "psys"]
    return sum(int(text) for text in texts) / 1e6 if texts and all(texts) else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


# -- marks -------------------------------------------------------------------------------------------------------------


def _others(before: State, seen: Seen, after: State) -> list[str]:
    """What others took of the cores, and what the host took: one sentence each, with the times at which it was much."""
    times = (("before it began", before), ("while it ran", seen), ("after it had ended", after))
    used = [f"{told.others_cores:.1f} {when}" for when, told in times if told.others_cores > BUSY * told.cores]
    lost = [
        f"{told.stolen_cores / told.cores:.0%} {when}"
        for when, told in times
        if told.stolen_cores > STOLEN * told.cores
    ]
    found = [f"other processes used so many of {seen.cores} cores: {', '.join(used)}"] if used else []
    return [*found, *([f"the host gave CPU time to other guests: {', '.join(lost)}"] if lost else [])]


def _held_down(seen: Seen) -> list[str]:
    found = [f"the clock was held down on {reason}" for reason in seen.gpus_held_down]
    if seen.throttles:
        found.append(f"CPU cores were slowed by heat {seen.throttles} times")
    if seen.quota_s and seen.quota_s > BUSY * seen.seconds:
        found.append(f"a CPU limit held this container back for {seen.quota_s:.1f} of {seen.seconds:.1f} s")
    if seen.swapped_mb >= 1:
        found.append(f"the machine swapped {seen.swapped_mb:.0f} MB")
    return found


def _shared(gpu: Gpu) -> list[str]:
    if gpu.others:
        return [f"{gpu.others} other process{'es' * (gpu.others > 1)} held GPU {gpu.index} before it began"]
    if gpu.used is not None and gpu.used > BUSY:
        return [f"GPU {gpu.index} was at work before it began: {gpu.used:.0%}"]
    return []
