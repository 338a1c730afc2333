"""`localmem serve` as a process: what it says, what it refuses, how it stops."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from localmem.store import Store

BM25 = {"LOCALMEM_RETRIEVAL__RETRIEVER": "bm25"}


def environment(tmp_path: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LOCALMEM_")}
    return {**kept, **BM25, "XDG_DATA_HOME": str(tmp_path / "xdg")}


def refused(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "localmem", "serve", *arguments]
    return subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False)


def test_an_open_door_without_keys_is_refused_in_one_line(tmp_path: Path) -> None:
    done = refused(tmp_path, "--host", "0.0.0.0")  # noqa: S104  # it is refused
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "set server.keys" in done.stderr


def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = refused(tmp_path, "--port", str(port), "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"localmem: cannot listen on 127.0.0.1:{port}")


def test_a_model_that_is_not_there_ends_the_server_with_the_command_that_mends_it(tmp_path: Path) -> None:
    done = refused(tmp_path, "--port", "0", "--model", "mistral-7b-instruct-v0.3", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "localmem models pull mistral-7b-instruct-v0.3" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@contextmanager
def served(tmp_path: Path, data: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`localmem serve` on the starter backbone; gives the process and its address."""
    command = [sys.executable, "-m", "localmem", "serve", "--port", "0", "--data-dir", str(data)]
    with subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if line.startswith("serving"))
            yield process, line.split()[1].removesuffix("/v1:")
        finally:
            process.kill()


@pytest.mark.usefixtures("starter_llm_dir")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_talks_on_real_weights_and_stops_cleanly_amid_a_reply(tmp_path: Path, stop: signal.Signals) -> None:
    data = tmp_path / "data"
    with served(tmp_path, data) as (process, url), httpx.Client(base_url=url, timeout=240) as client:
        body = {"model": "localmem", "messages": [{"role": "user", "content": "Tell me a long story."}]}
        whole = client.post("/v1/chat/completions", json={**body, "max_tokens": 8})
        assert whole.status_code == 200, whole.text
        assert whole.json()["usage"]["completion_tokens"] <= 8
        assert client.get("/health/ready").status_code == 200
        ask = {"role": "user", "content": "Go on, tell me all of it."}
        story = {**body, "messages": [ask], "max_tokens": 2000, "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=story) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(stop)
            assert any("[DONE]" in line or "broken_off" in line for line in lines)
        assert process.wait(60) == 0
    with Store.open(data) as store:
        logs = [store.session("me", info.id).turns for info in store.sessions("me")]
    assert [turns[0].text for turns in logs] == ["Tell me a long story.", ask["content"]]
    assert all(len(turns) == 2 and turns[1].text for turns in logs)
