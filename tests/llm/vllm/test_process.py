"""Supervision of a small stub server: waiting, one and two deaths, no answers, no process left over."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from localmem.errors import LLMUnavailable
from localmem.llm.vllm import guard, server_process
from localmem.llm.vllm.server_process import ServerCommand, ServerProcess
from tests.waiting import wait_until

# Serves /health once the file `ready` exists; has a child of its own, as vLLM has; `sick` makes it answer 503.
STUB = """
import http.server, pathlib, signal, subprocess, sys, time
port, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
(folder / "pids").write_text(f"{__import__('os').getpid()} {child.pid}")
if (folder / "stubborn").exists():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("stub: loading weights", flush=True)
if (folder / "broken").exists():
    print("Traceback: much that nobody reads")
    sys.exit("RuntimeError: no room for the weights")
while not (folder / "ready").exists():
    time.sleep(0.01)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if (folder / "sick").exists() else 200)
        self.end_headers()
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer):
    allow_reuse_address = True
Server(("127.0.0.1", port), Handler).serve_forever()
"""


class Stub:
    """A stub server's folder, and the supervisor over it."""

    def __init__(
        self,
        folder: Path,
        port: int,
        *,
        progress: Callable[[str, float], None] | None = None,
        start_seconds: float = 30.0,
        grace_seconds: float = 20.0,
    ) -> None:
        self.folder = folder
        self.log = folder / "logs" / "stub.log"
        how = ServerCommand(
            name="stub",
            command=[sys.executable, "-c", STUB, str(port), str(folder)],
            health=f"http://127.0.0.1:{port}/health",
            log=self.log,
            environment={"STUB": "1"},
            stages=(("loading weights", "loading weights"),),
            start_seconds=start_seconds,
            grace_seconds=grace_seconds,
        )
        self.server = ServerProcess(how, progress=progress)

    def pids(self) -> list[int]:
        """The server's and its child's."""
        return [int(pid) for pid in (self.folder / "pids").read_text().split()]

    def alive(self) -> list[int]:
        return [pid for pid in self.pids() if psutil.pid_exists(pid) and _running(pid)]

    def kill(self) -> None:
        os.kill(self.pids()[0], signal.SIGKILL)

    def say(self, word: str) -> None:
        (self.folder / word).touch()


def _running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "_POLL_SECONDS", 0.02)


@pytest.fixture
def port(unused_port: int) -> int:
    return unused_port


@pytest.fixture
def stub(tmp_path: Path, unused_port: int) -> Iterator[Stub]:
    stub = Stub(tmp_path, unused_port)
    stub.say("ready")
    yield stub
    stub.server.stop()


def test_it_serves_and_leaves_no_process(stub: Stub) -> None:
    stub.server.start()
    assert len(stub.alive()) == 2
    stub.server.ensure_ready()
    assert stub.server.starts == 1
    stub.server.stop()
    assert stub.alive() == []
    with pytest.raises(LLMUnavailable, match="stub server was stopped"):
        stub.server.ensure_ready()
    stub.server.stop()


def test_only_the_owner_can_read_the_log(stub: Stub) -> None:
    stub.server.start()
    assert stub.log.stat().st_mode & 0o077 == 0


def test_it_waits_while_the_server_loads_and_reports_stages(tmp_path: Path, unused_port: int) -> None:
    stages: list[str] = []
    stub = Stub(tmp_path, unused_port, progress=lambda stage, _seconds: stages.append(stage))
    stub.server.start(wait=False)
    wait_until(lambda: "loading weights" in stages)
    waiting = threading.Thread(target=stub.server.ensure_ready)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    stub.say("ready")
    waiting.join(10)
    assert not waiting.is_alive()
    assert stages[-1] == "ready"
    stub.server.stop()


def test_dead_once_is_restarted_dead_twice_is_reported(stub: Stub) -> None:
    stub.server.start()
    first = stub.pids()
    stub.kill()
    wait_until(lambda: stub.server.starts == 2)
    stub.server.ensure_ready()
    assert len(stub.alive()) == 2
    assert not any(_running(pid) for pid in first)
    assert (stub.log.parent / "stub.log.before").exists()
    stub.kill()
    with pytest.raises(LLMUnavailable, match=r"stub server ended with code 137; its log says: stub: loading weights"):
        eventually_refused(stub.server)
    assert stub.alive() == []


def eventually_refused(server: ServerProcess) -> None:
    """A server just killed may answer once more."""
    for _ in range(1000):
        server.ensure_ready()
        time.sleep(0.02)


def test_a_server_that_served_long_has_another_restart(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "_STABLE_SECONDS", 0.0)
    stub.server.start()
    for starts in (2, 3, 4):
        stub.kill()
        wait_until(lambda expected=starts: stub.server.starts == expected)  # type: ignore[misc]
        stub.server.ensure_ready()


def test_a_server_that_never_served_is_not_restarted(stub: Stub) -> None:
    stub.say("broken")
    with pytest.raises(LLMUnavailable, match="ended with code 1; its log says: RuntimeError: no room for the weights"):
        stub.server.start()
    assert stub.server.starts == 1
    assert stub.alive() == []


def test_a_start_that_takes_too_long_is_ended(tmp_path: Path, unused_port: int) -> None:
    stub = Stub(tmp_path, unused_port, start_seconds=2)
    with pytest.raises(LLMUnavailable, match="was not ready after 2 s"):
        stub.server.start()
    wait_until(lambda: stub.alive() == [])


def test_a_deaf_server_is_started_again(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_process, "_UNRESPONSIVE_SECONDS", 0.3)
    stub.server.start()
    stub.say("sick")
    waiting = threading.Thread(target=stub.server.ensure_ready)
    waiting.start()
    wait_until(lambda: stub.server.starts == 2)
    (stub.folder / "sick").unlink()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_stubborn_server_is_killed(tmp_path: Path, unused_port: int) -> None:
    stub = Stub(tmp_path, unused_port, grace_seconds=0.5)
    stub.say("stubborn")
    stub.say("ready")
    stub.server.start()
    stub.server.stop()
    assert stub.alive() == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_the_program_that_started_it(tmp_path: Path, unused_port: int, number: int) -> None:
    (tmp_path / "ready").touch()
    program = (
        "import sys, pathlib, time; sys.path.insert(0, '.')\n"
        "from tests.llm.vllm.test_process import Stub\n"
        f"Stub(pathlib.Path({str(tmp_path)!r}), {unused_port}).server.start()\n"
        "print('serving', flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"serving\n"
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert all(_running(pid) for pid in pids)
    parent.send_signal(number)
    parent.wait(10)
    parent.stdout.close()
    wait_until(lambda: not any(_running(pid) for pid in pids))


def test_an_exit_without_stop_leaves_no_process(tmp_path: Path, unused_port: int) -> None:
    (tmp_path / "ready").touch()
    program = (
        "import sys, pathlib; sys.path.insert(0, '.')\n"
        "from tests.llm.vllm.test_process import Stub\n"
        f"Stub(pathlib.Path({str(tmp_path)!r}), {unused_port}).server.start()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=Path(__file__).parents[3])
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    wait_until(lambda: not any(_running(pid) for pid in pids))


@pytest.mark.parametrize("nice", [0, 5])
def test_a_command_yields_by_its_niceness_within_its_session_and_among_sessions(nice: int) -> None:
    groups = Path("/proc/self/autogroup")
    tell = f"import os, pathlib; print(os.nice(0), pathlib.Path({str(groups)!r}).read_text())"
    arguments = ["1", str(nice), sys.executable, "-c", tell if groups.exists() else "import os; print(os.nice(0))"]
    with subprocess.Popen(
        [sys.executable, guard.__file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        stages = child.stdout.read().split()
    assert int(stages[0]) == os.nice(0) + nice
    assert not groups.exists() or int(stages[-1]) == nice


def test_a_killed_guard_takes_the_server_with_it(stub: Stub) -> None:
    stub.server.start()
    server, child = stub.pids()
    assert stub.server._process is not None
    os.kill(stub.server._process.pid, signal.SIGKILL)
    wait_until(lambda: not _running(server))
    os.kill(child, signal.SIGKILL)
    stub.server.ensure_ready()
    assert stub.server.starts == 2


def test_nothing_answers_elsewhere(unused_port: int) -> None:
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{unused_port}/health", trust_env=False)
