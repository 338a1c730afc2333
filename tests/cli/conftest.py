"""The command as a user runs it: a process and a data directory of its own, and BM25, which needs no weights."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def localmem(tmp_path: Path) -> Run:
    """Runs `localmem ARGS` and returns the finished process; `stdin` is typed in, `env` adds variables."""
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


@pytest.fixture
def session_log(tmp_path: Path) -> Path:
    """JSONL of two sessions of a user with a dog who moves from Paris to Lyon."""
    sessions = {
        "first": ("2026-03-02", "My dog is called Bruno.", "A fine name.", "I live in Paris.", "Lovely."),
        "second": ("2026-03-09", "I moved: now I live in Lyon.", "How is it?"),
    }
    path = tmp_path / "log.jsonl"
    lines = [json.dumps({"id": name, "turns": _turns(day, *texts)}) for name, (day, *texts) in sessions.items()]
    path.write_text("\n".join(lines))
    return path


def _turns(day: str, *texts: str) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    return [
        {"role": roles[number % 2], "text": text, "time": f"{day}T18:0{number}:00Z"}
        for number, text in enumerate(texts)
    ]
