"""Runs one command and sees to it that nothing of it outlives the program that asked for it.

A program of its own, on the standard library alone: `python guard.py SECONDS NICE COMMAND...`. It ends the command and
its whole process group on SIGTERM, when its standard input closes (the asking program is gone, however it died), and
when the command's first process has ended but left others behind. A byte of input before the end means: do not ask
first. Exits with the command's code.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def main(grace: float, nice: int, command: list[str]) -> int:
    """The command's exit code, as a shell gives it (128 + the signal that ended it).

    What has not ended `grace` seconds after being asked to is killed. `nice` is by how much it yields a core.
    """
    ending, at_once = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    _on_parents_death(signal.SIGTERM)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: _begin(nice),  # noqa: PLW1509  # no other thread runs yet
    )
    threading.Thread(target=_await_end_of_input, args=(ending, at_once), daemon=True).start()
    while child.poll() is None:
        if ending.wait(0.1):
            _end(child, 0.0 if at_once.is_set() else grace)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _begin(nice: int) -> None:
    _on_parents_death(signal.SIGKILL)
    if nice:
        os.nice(nice)
        # Linux may share cores out among sessions, of which the command has one, and then only within each by niceness.
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(nice))


def _end(child: "subprocess.Popen[bytes]", grace: float) -> None:
    child.terminate()
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _await_end_of_input(ending: threading.Event, at_once: threading.Event) -> None:
    while os.read(0, 1024):
        at_once.set()
    ending.set()


def _on_parents_death(number: int) -> None:
    """On Linux the parent's death, even by SIGKILL, brings the calling process this signal; elsewhere nothing."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
