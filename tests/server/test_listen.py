"""`localmem serve` as a process: output, refusals, shutdown."""

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
from tests.store.lives import remember

BM25 = {"LOCALMEM_RETRIEVAL__RETRIEVER": "bm25"}


def environment(tmp_path: Path) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("LOCALMEM_")}
    return {**inherited, **BM25, "XDG_DATA_HOME": str(tmp_path / "xdg")}


def run_serve(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "localmem", "serve", *arguments]
    return subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False)


def test_serving_other_machines_without_keys_is_refused_in_one_line(tmp_path: Path) -> None:
    finished = run_serve(tmp_path, "--host", "0.0.0.0")  # noqa: S104  # nothing is bound to it
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert len(finished.stderr.splitlines()) == 1
    assert "localmem keys create" in finished.stderr


def test_an_unknown_system_is_an_error_of_one_line(tmp_path: Path) -> None:
    finished = run_serve(tmp_path, "--system", "evidenc", "--data-dir", str(tmp_path))
    assert finished.returncode == 2
    assert finished.stderr.startswith("localmem: unknown system 'evidenc' (did you mean 'evidence'?)")
    assert len(finished.stderr.splitlines()) == 1


def test_a_damaged_store_is_an_error_of_one_line(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        remember(store, "ann", "rsum", "s1", [], "I keep bees")
    content = (tmp_path / "memory.db").read_bytes()
    (tmp_path / "memory.db").write_bytes(content[:8192] + b"\xff" * (len(content) - 8192))
    finished = run_serve(tmp_path, "--port", "0", "--data-dir", str(tmp_path))
    assert finished.returncode == 1
    assert finished.stderr.startswith(f"localmem: {tmp_path / 'memory.db'} is damaged")
    assert len(finished.stderr.splitlines()) == 1


def test_an_occupied_port_is_an_error_of_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        port = occupied.getsockname()[1]
        finished = run_serve(tmp_path, "--port", str(port), "--data-dir", str(tmp_path))
    assert finished.returncode == 2
    assert finished.stderr.splitlines()[-1].startswith(f"localmem: cannot listen on 127.0.0.1:{port}")


def test_a_missing_model_stops_the_server_with_the_command_that_cures_it(tmp_path: Path) -> None:
    finished = run_serve(tmp_path, "--port", "0", "--model", "mistral-7b-instruct-v0.3", "--data-dir", str(tmp_path))
    assert finished.returncode == 1
    assert "localmem models pull mistral-7b-instruct-v0.3" in finished.stderr.splitlines()[-1]
    assert "Traceback" not in finished.stderr


@contextmanager
def start_server(tmp_path: Path, data: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`localmem serve` on the starter backbone; gives the process and its address."""
    command = [sys.executable, "-m", "localmem", "serve", "--port", "0", "--data-dir", str(data)]
    with subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if line.startswith("serving"))
            yield process, line.split()[1].removesuffix("/v1:")
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.usefixtures("starter_llm_dir")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_replies_with_real_weights_and_stops_cleanly_during_a_reply(tmp_path: Path, stop: signal.Signals) -> None:
    data = tmp_path / "data"
    with start_server(tmp_path, data) as (process, url), httpx.Client(base_url=url, timeout=240) as client:
        body = {"model": "localmem", "messages": [{"role": "user", "content": "Tell me a long story."}]}
        reply = client.post("/v1/chat/completions", json={**body, "max_tokens": 8})
        assert reply.status_code == 200, reply.text
        assert reply.json()["usage"]["completion_tokens"] <= 8
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
