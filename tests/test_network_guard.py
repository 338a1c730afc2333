"""The guard of the command line: what it refuses and lets through. In processes of its own: it cannot be taken off."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localmem import network_guard

NOWHERE = "192.0.2.1"  # kept for documentation (RFC 5737): nothing answers there
CONNECT = f"socket.create_connection(({NOWHERE!r}, 9), timeout=0.01)"
LOOPBACK = "s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('through')"


def _run(code: str) -> subprocess.CompletedProcess[str]:
    """The code with the guard armed and without the tests' own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = f"import socket\nfrom localmem import network_guard\nnetwork_guard.arm()\n{code}"
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    "code",
    [
        CONNECT,
        f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ({NOWHERE!r}, 9))",
        "socket.getaddrinfo('example.invalid', 443)",
        "socket.gethostbyname('example.invalid')",
        f"network_guard.allow([{NOWHERE!r}])\nnetwork_guard.seal()\n{CONNECT}",
    ],
)
def test_other_machines_are_refused(code: str) -> None:
    refused = _run(code)
    assert refused.returncode != 0
    assert "refused to reach" in refused.stderr


@pytest.mark.parametrize("call", [f"allow([{NOWHERE!r}])", "open_network()"])
def test_what_the_settings_name_is_tried(call: str) -> None:
    tried = _run(f"network_guard.{call}\n{CONNECT}")
    assert "refused to reach" not in tried.stderr
    assert "Error" in tried.stderr  # nothing answers there


def test_this_machine_is_reached_and_nothing_else_is_watched() -> None:
    process = _run(f"{LOOPBACK}\nopen({__file__!r}).close()")
    assert (process.stdout, process.returncode) == ("through\n", 0)


_REASON = _run("print(network_guard.why_not_isolated())").stdout.strip()
isolates = pytest.mark.skipif(bool(_REASON), reason=_REASON or "it does")
NETWORK = "import os; print(os.readlink('/proc/self/ns/net'), len(open('/proc/net/dev').readlines()))"
LOAD = "from localmem.cli.options import SettingsFlags\nSettingsFlags(None, {}).load(%s)\n"


@isolates
@pytest.mark.parametrize("start", ["network_guard.isolate()", LOAD % ""])
def test_a_command_and_its_children_have_a_loopback_of_their_own_and_nothing_else(start: str) -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {NETWORK!r}], check=True)"
    process = _run(f"{start}\n{child}\n{NETWORK}\nnetwork_guard._guard.is_open = True\n{LOOPBACK}\n{CONNECT}")
    of_child, own, loopback = process.stdout.splitlines()
    assert own == of_child
    assert own.split()[0] != str(Path("/proc/self/ns/net").readlink())
    assert own.split()[1] == "3"  # two headings and lo
    assert loopback == "through"
    assert "Network is unreachable" in process.stderr


@isolates
def test_what_was_opened_before_keeps_its_network() -> None:
    """As the listener of `localmem serve`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = f"client = socket.create_connection({server.getsockname()})\nnetwork_guard.isolate()\n"
        process = _run(f"{before}client.sendall(b'here')")
        accepted, _ = server.accept()
        with accepted:
            assert (process.returncode, accepted.recv(4)) == (0, b"here")


@pytest.mark.parametrize("more", ["llm={'url': 'http://127.0.0.1:1/v1'}", "llm={'url': 'http://gpu.example/v1'}"])
def test_a_host_of_the_settings_keeps_the_network(more: str) -> None:
    assert str(Path("/proc/self/ns/net").readlink()) in _run(f"{LOAD % more}{NETWORK}").stdout


def test_without_a_host_of_the_settings_nothing_else_can_be_allowed() -> None:
    assert "refused to reach" in _run(f"{LOAD % ''}network_guard.allow([{NOWHERE!r}])\n{CONNECT}").stderr


def test_a_program_that_imports_localmem_keeps_its_network() -> None:
    assert network_guard.isolate() == ""
    assert not network_guard._guard.is_isolated


def test_a_sealed_command_downloads_nothing() -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "localmem", "--offline", "models", "pull", "starters"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert refused.stderr == "localmem: a download needs the network; omit --offline\n"


@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run(["unshare", "-rn", "true"], check=False).returncode != 0,
    reason="this system lets no process take its network away",
)
def test_memory_works_in_a_process_without_any_network(tmp_path: Path) -> None:
    """Not even loopback is up there, so that native code is covered too."""
    log = tmp_path / "log.jsonl"
    turn = '{"role": "user", "text": "My dog is called Rex.", "time": "2026-03-01T10:00:00+00:00"}'
    log.write_text(f'{{"id": "one", "turns": [{turn}]}}\n', encoding="utf-8")

    def run(*arguments: str) -> str:
        command = ["unshare", "-rn", sys.executable, "-m", "localmem", *arguments, "--data-dir", str(tmp_path / "home")]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        return process.stdout

    run("remember", str(log))
    assert "Rex" in run("recall", "what is my dog called?")
    assert "Rex" in run("show")
