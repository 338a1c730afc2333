"""Victims as seen from outside: started, watched by what they acknowledge, killed. Knows nothing of what they do."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
_POLL_SECONDS = 0.002
_LONGEST = 1200.0  # seconds; a victim that takes longer hangs, which is a defect too


class Victim:
    """A running process and the file of what it acknowledged. A line cut in half was not yet an acknowledgement."""

    def __init__(self, pid: int, file: Path, wait: Callable[[int], int]) -> None:
        self.pid, self._file, self._wait = pid, file, wait

    def acknowledged(self) -> list[str]:
        """The lines so far. Raises AssertionError for an exception of the victim."""
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()
        assert not (lines and lines[-1].startswith("error ")), lines[-1].replace("\\n", "\n")
        return lines

    def wait_for(self, count: int) -> None:
        """Wait until it acknowledged so many things, or ended."""
        end = time.monotonic() + _LONGEST
        while len(self.acknowledged()) < count and not self._has_ended():
            assert time.monotonic() < end, f"{self._file.name}: {len(self.acknowledged())} of {count} in {_LONGEST} s"
            time.sleep(_POLL_SECONDS)

    def kill(self) -> bool:
        """Kill it with SIGKILL; False if it had come to its end before."""
        os.kill(self.pid, signal.SIGKILL)  # a process that ended is there until it is waited for
        status = self._wait(self.pid)
        self.acknowledged()
        return status == -signal.SIGKILL

    def finish(self) -> None:
        """Wait for its own end, which must be a good one."""
        while not self._has_ended():
            time.sleep(_POLL_SECONDS)
        status = self._wait(self.pid)
        self.acknowledged()
        assert status == 0, f"{self._file.name} ended with status {status}"

    def _has_ended(self) -> bool:
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state == "Z"


class Victims:
    """The program that forks victims; a context manager. Safe for many threads."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        """`root` is the checkout whose code they run."""
        self._folder, self._root, self._count, self._guard = folder, root, 0, threading.Lock()

    def __enter__(self) -> Self:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.drills.victims"]
        self._program = subprocess.Popen(
            command, cwd=self._root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._program.communicate()  # at the end of its input it kills the victims that are left

    def start(self, victim: str, *arguments: str) -> Victim:
        """Start one."""
        with self._guard:
            self._count += 1
            file = self._folder / f"{victim}-{self._count}.acknowledged"
        order = {"victim": victim, "arguments": arguments, "acknowledgements": str(file)}
        return Victim(self._order(order), file, lambda pid: self._order({"wait": pid}))

    def run(self, victim: str, *arguments: str) -> list[str]:
        """Let one come to its end, and return what it acknowledged."""
        running = self.start(victim, *arguments)
        running.finish()
        return running.acknowledged()

    def _order(self, order: Mapping[str, object]) -> int:
        with self._guard:
            assert self._program.stdin is not None
            assert self._program.stdout is not None
            self._program.stdin.write(f"{json.dumps(order)}\n")
            self._program.stdin.flush()
            return int(self._program.stdout.readline())
