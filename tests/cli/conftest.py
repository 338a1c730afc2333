"""The command as a user runs it: a process and a data directory of its own, and BM25, which needs no weights."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]
_TIMEOUT = 300  # seconds


def _environment() -> dict[str, str]:
    return {
        key: value for key, value in os.environ.items() if not key.startswith(("LOCALMEM_", "HF_", "TRANSFORMERS_"))
    }


@pytest.fixture(scope="session")
def fork_server() -> Iterator["subprocess.Popen[str]"]:
    """A process that has imported what commands share and forks for each of them; see `fork_server.py`."""
    command = [sys.executable, "-m", "tests.cli.fork_server"]
    pipe = subprocess.PIPE
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=_environment(), cwd=root) as server:
        yield server
        assert server.stdin is not None
        server.stdin.close()


@pytest.fixture
def localmem(tmp_path: Path, fork_server: "subprocess.Popen[str]") -> Run:
    """Runs `localmem ARGS` and returns the finished process; `stdin` is typed in, `env` adds variables."""
    base = _environment() | {"XDG_DATA_HOME": str(tmp_path / "xdg"), "LOCALMEM_RETRIEVAL__RETRIEVER": "bm25"}
    assert fork_server.stdin is not None
    assert fork_server.stdout is not None
    requests, codes = fork_server.stdin, fork_server.stdout

    def run(*arguments: object, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        words = [str(argument) for argument in arguments]
        with TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in ("in", "out", "err")]
            files[0].write_text(stdin, encoding="utf-8")
            request = {
                "arguments": words,
                "environment": base | (env or {}),
                "folder": str(tmp_path),
                "files": [str(file) for file in files],
                "timeout": _TIMEOUT,
            }
            print(json.dumps(request), file=requests, flush=True)
            code = int(codes.readline())
            out, err = (file.read_text(encoding="utf-8") for file in files[1:])
        return subprocess.CompletedProcess(words, code, out, err)

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
