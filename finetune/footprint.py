"""How much memory a piece of work takes at its peak: this process with its children, and a GPU's where there is one.

Looks twenty times a second; what lives shorter is not seen. Knows no model.
"""

import ctypes
import gc
import sys
import threading
from types import ModuleType, TracebackType

import psutil  # type: ignore[import-untyped]  # publishes no types

_SECONDS = 0.05


class Peak:
    """To be used with `with` around the work; `mib` and `gpu_mib` (0 without one) hold the peaks afterwards.

    What earlier work in this process has freed is given back to the system first, so that it is not counted.
    """

    def __init__(self) -> None:
        self.mib = 0.0
        self.gpu_mib = 0.0
        self._done = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Peak":
        give_back()
        if cuda := _cuda():
            cuda.reset_peak_memory_stats()
        self._processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        self._looking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._looking.join()
        if cuda := _cuda():
            self.gpu_mib = cuda.max_memory_allocated() / 2**20

    def _look(self) -> None:
        while True:
            self.mib = max(self.mib, sum(_resident(process) for process in self._processes) / 2**20)
            if self._done.wait(_SECONDS):
                return


def give_back() -> None:
    """What this process has freed goes back to the system, where the C library can do that."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim:
            trim(0)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _cuda() -> ModuleType | None:
    """torch's, where torch is loaded and sees a GPU."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() else None
