"""Several processes behind one address: they share the store, one that is killed is replaced, all stop together."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest
import yaml

from tests.llm.remote.conftest import Peer, greeting_peer

pytestmark = pytest.mark.slow


@pytest.fixture
def peer() -> Iterator[Peer]:
    with greeting_peer("smollm2-135m-instruct") as started:
        yield started


class Workers:
    """A running `localmem serve --workers 2`."""

    def __init__(self, folder: Path, backbone: str) -> None:
        file = folder / "settings.yaml"
        llm = {"url": backbone, "backend": "vllm"}
        settings = {"model": "smollm2-135m-instruct", "data": str(folder / "data"), "system": "none", "llm": llm}
        file.write_text(yaml.safe_dump({**settings, "server": {"port": 0, "workers": 2, "grace_seconds": 1}}))
        command = [sys.executable, "-m", "localmem", "serve", "--config", str(file)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.stderr = self.process.stderr
        self.lines: list[str] = []
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self.stderr:
            with self.changed:
                self.lines.append(line)
                self.changed.notify_all()
        with self.changed:
            self.lines.append("")
            self.changed.notify_all()

    def wait_for(self, text: str, count: int) -> str:
        """The line, once so many with this text were written."""
        with self.changed:
            assert self.changed.wait_for(lambda: self._matches(text)[count - 1 :] or "" in self.lines, 300), self.lines
        return self._matches(text)[count - 1]

    def _matches(self, text: str) -> list[str]:
        return [line for line in self.lines if text in line]


@pytest.fixture
def workers(peer: Peer, tmp_path: Path) -> Iterator[Workers]:
    started = Workers(tmp_path, peer.url)
    yield started
    started.process.terminate()
    started.process.wait(60)
    started.reader.join()
    started.stderr.close()


def test_they_share_a_store_and_a_killed_one_is_replaced(workers: Workers) -> None:
    line = workers.wait_for("serving http://", 2)
    url = line.partition("serving ")[2].partition("/v1")[0]
    messages = [{"role": "user", "content": "Hello."}]
    for number in range(6):  # whichever worker takes it, the dialogue goes on in one session
        with httpx.Client(base_url=url, timeout=300) as client:
            body = {"model": "localmem", "messages": messages}
            response = client.post("/v1/chat/completions", json=body)
            assert response.status_code == 200, (response.text, workers.lines)
            reply = response.json()["choices"][0]["message"]
            messages += [reply, {"role": "user", "content": f"And {number}?"}]
    with httpx.Client(base_url=url, timeout=300) as client:
        sessions = client.get("/v1/sessions").raise_for_status().json()["data"]
    assert [session["turns"] for session in sessions] == [12]
    os.kill(psutil.Process(workers.process.pid).children()[0].pid, signal.SIGKILL)
    workers.wait_for("was killed by signal 9; starting another", 1)
    workers.wait_for("serving http://", 3)
    workers.process.terminate()
    assert workers.process.wait(60) == 0


@pytest.mark.parametrize("end", [signal.SIGHUP, signal.SIGKILL])
def test_none_outlives_the_process_that_started_them(workers: Workers, end: signal.Signals) -> None:
    workers.wait_for("serving http://", 2)
    children = psutil.Process(workers.process.pid).children()
    workers.process.send_signal(end)
    assert workers.process.wait(60) == (0 if end == signal.SIGHUP else -end)
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def test_workers_without_a_server_of_the_model_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "localmem", "serve", "--workers", "2", "--data-dir", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 2
    assert "each worker would load a backbone; set llm.url" in run.stderr
