"""Runs one command and makes sure that none of its processes outlives the program that started it.

A program of its own: `python guard.py SECONDS NICE COMMAND...`. It ends the command and its process group on SIGTERM,
when its standard input closes, and when the command's first process has ended but left others behind. A byte of input
before the end of input means: kill at once. Exits with the command's code. Uses the standard library only.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

# Why a process between localmem and the server. A server that stays behind holds a GPU's memory or all cores, and the
# program that started it may die in ways that run no code: SIGKILL, the kernel's out-of-memory killer. The
# operating system closes the pipe to the guard's standard input in every case, so the end of input is the one signal
# that always arrives. vLLM itself does not read its standard input, therefore the guard does.
#
# Why a session of its own for the command. vLLM starts processes that outlive their parent when it is killed. All of
# them are in the process group that `start_new_session` makes, and `killpg` reaches them even when their parent is
# gone. It also keeps a Ctrl-C in the terminal from reaching the server before localmem has ended its own work.
#
# Why PR_SET_PDEATHSIG as well, twice. If the guard itself is killed nobody reads the pipe. Linux then sends the signal
# to the command's first process (SIGKILL). For the guard the signal is SIGTERM, which wakes it a little earlier
# than the end of input does. Elsewhere than on Linux only the pipe remains.
#
# Why the guard polls instead of waiting: it waits for three things at once, the command, a signal and its input, and
# Popen.wait cannot be interrupted by a threading.Event. Ten looks a second cost nothing that can be measured.

_PR_SET_PDEATHSIG = 1


def main(grace: float, nice: int, command: list[str]) -> int:
    """The command's exit code, as a shell reports it (128 + the signal that ended it).

    After a request to end it has `grace` seconds, then it is killed. `nice` is added to its niceness.
    """
    end, at_once = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    _signal_on_parent_death(signal.SIGTERM)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: _prepare_child(nice),  # noqa: PLW1509  # no other thread runs yet
    )
    threading.Thread(target=_await_end_of_input, args=(end, at_once), daemon=True).start()
    while child.poll() is None:
        if end.wait(0.1):
            _terminate(child, 0.0 if at_once.is_set() else grace)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _prepare_child(nice: int) -> None:
    _signal_on_parent_death(signal.SIGKILL)
    if nice:
        os.nice(nice)
        # With autogroups Linux divides the cores among sessions first, and niceness counts only within one session.
        # The command has a session of its own, so the session must yield too.
        with suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(nice))


def _terminate(child: "subprocess.Popen[bytes]", grace: float) -> None:
    child.terminate()
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _await_end_of_input(end: threading.Event, at_once: threading.Event) -> None:
    while os.read(0, 1024):
        at_once.set()
    end.set()


def _signal_on_parent_death(number: int) -> None:
    """Linux sends this signal to the calling process when its parent dies, even by SIGKILL; elsewhere a no-op."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
