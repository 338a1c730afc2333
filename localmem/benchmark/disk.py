"""How long the disk takes to make a write durable by itself: what a durable turn can at best take. Knows no store."""

import os
import tempfile
from pathlib import Path
from time import perf_counter

_BLOCK = bytes(4096)  # a page of the database


def fsync_ms(folder: Path, times: int) -> list[float]:
    """Milliseconds of each of `times` appended pages with its fsync, in a file under `folder` that is then deleted."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix="fsync-", buffering=0) as file:
        for _ in range(times):
            began = perf_counter()
            file.write(_BLOCK)
            os.fsync(file.fileno())
            found.append(1000 * (perf_counter() - began))
    return found
