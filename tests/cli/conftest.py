"""The command as a user runs it: a process and a data directory of its own, and BM25, which needs no weights."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def localmem(tmp_path: Path) -> Run:
    """Runs `localmem ARGS` and gives back what it printed; `stdin` is typed in, `env` adds variables."""
    base = {
        key: value for key, value in os.environ.items() if not key.startswith(("LOCALMEM_", "HF_", "TRANSFORMERS_"))
    }
    base |= {"XDG_DATA_HOME": str(tmp_path / "xdg"), "LOCALMEM_RETRIEVAL__RETRIEVER": "bm25"}

    def run(*arguments: object, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "localmem", *map(str, arguments)],
            input=stdin,
            env=base | (env or {}),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
