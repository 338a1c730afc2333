"""A server of our own, started, awaited, watched, restarted once and ended with this program.

It works with a command, a health address and a log file, and does not depend on what is served.
"""

import atexit
import logging
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx

from localmem.errors import LLMUnavailable
from localmem.llm.vllm import guard

logger = logging.getLogger(__name__)

# How a server is kept alive. One thread, the watcher, starts the guard with the server under it, waits for readiness,
# waits for the end, and decides about a restart. It makes the process itself, because Linux sends the death signal
# (see guard.py) when the thread that made a child ends, not when its process does: started from a request's thread, the
# server would be killed as soon as that thread finished. All other threads only read the state under the condition.
#
# When a restart helps. A server that has served before and died (out of memory, a driver's error) is started once more;
# a server that never became ready would fail in the same way again, so its log is reported instead. After
# _STABLE_SECONDS of service a death counts as the first again, so that a server may die once a day for ever, but
# never restarts in a loop.
#
# Why a health address and not the exit code. A model server that hangs in a GPU kernel lives and answers nothing.
# `ensure_ready` is called by requests that got no answer: it asks the health address until _UNRESPONSIVE_SECONDS have
# passed and then ends the process, which the watcher treats like any other death. `starts` tells whether another thread
# has brought a restart about meanwhile; without that check the fresh server would be killed in place of the deaf one.
#
# How it ends. Closing the guard's standard input is the request to end, so the same thing happens on `stop`, on a
# regular exit (atexit) and when this program is killed. A server that is still loading is killed at once: it does
# not react to a request to end before it has loaded, and has no work to finish.
#
# The log is made by us, mode 0600, for prompts may appear in it; the one before is renamed to *.before, because the
# reason of a death is in there when the restart succeeds. `-I` keeps PYTHONPATH and the current folder from
# replacing a module of the standard library in the guard.

Progress = Callable[[str, float], None]

_POLL_SECONDS = 0.25
_STABLE_SECONDS = 600.0
_UNRESPONSIVE_SECONDS = 30.0
_KILL_SECONDS = 5.0  # for the guard to kill what did not end
_TAIL_BYTES = 16384
_TAIL_LINES = 3
_TAIL_WIDTH = 300


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How to start a server and see how it is.

    `health` answers 200 once it serves. `stages` are patterns of its log with a description for the user, in the order
    of a start. `environment` is added to this program's. It is killed `grace_seconds` after a request to end. `nice` is
    added to its niceness.
    """

    name: str
    command: Sequence[str]
    health: str
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stages: Sequence[tuple[str, str]] = ()
    start_seconds: float = 900.0
    grace_seconds: float = 20.0
    nice: int = 0


class ServerProcess:
    """Keeps one server running. All methods are safe to call from any thread."""

    def __init__(self, how: ServerCommand, *, progress: Progress | None = None) -> None:
        self._how = how
        self._progress = progress or (lambda _stage, _seconds: None)
        self._changed = threading.Condition()
        self._state: Literal["new", "starting", "ready", "dead", "stopped"] = "new"
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None
        self.starts = 0  # how often it was started; what an earlier process had loaded at run time is lost
        self._timed_out = False
        self._reason = ""

    def start(self, *, wait: bool = True) -> None:
        """Starts the server and, with `wait`, returns when it serves. Raises LLMUnavailable with the end of its log."""
        with self._changed:
            is_new = self._state == "new"
            self._state = "starting" if is_new else self._state
        if is_new:
            atexit.register(self.stop)
            self._watcher = threading.Thread(target=self._watch, name=f"{self._how.name}-watcher", daemon=True)
            self._watcher.start()
        if wait:
            self.ensure_ready()

    def ensure_ready(self) -> None:
        """Waits while the server starts or restarts. Raises LLMUnavailable when it has ended for good."""
        unresponsive_since: float | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._state != "starting")
                if self._state == "dead":
                    raise LLMUnavailable(self._reason)
                if self._state in ("new", "stopped"):
                    raise LLMUnavailable(f"the {self._how.name} server was stopped; start it again")
                starts = self.starts
            if self._is_healthy():
                return
            unresponsive_since = unresponsive_since or time.monotonic()
            if time.monotonic() - unresponsive_since > _UNRESPONSIVE_SECONDS:
                self._end_unresponsive(starts)
                unresponsive_since = None
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        with self._changed:
            if self._state in ("new", "stopped"):
                return
            self._end(at_once=self._state == "starting")
            self._state = "stopped"
            self._changed.notify_all()
        if self._watcher:
            self._watcher.join(self._how.grace_seconds + _KILL_SECONDS)
        if self._process and self._process.poll() is None:
            self._process.kill()
        atexit.unregister(self.stop)

    def _watch(self) -> None:
        restarts = 0
        while True:
            ready_for = self._run_once()
            with self._changed:
                if self._state == "stopped":
                    return
                restarts = 0 if ready_for > _STABLE_SECONDS else restarts
                restart = restarts == 0 and ready_for > 0
                self._reason = self._death_report()
                self._state = "starting" if restart else "dead"
                self._changed.notify_all()
            if not restart:
                logger.error("%s", self._reason)
                return
            restarts += 1
            logger.warning("%s; restarting it", self._reason)

    def _run_once(self) -> float:
        with self._changed:
            if self._state == "stopped":
                return 0.0
            self._process = process = self._spawn()
            self.starts += 1
        ready = time.monotonic() if self._await_ready(process) else None
        if ready is None:
            self._end(at_once=True)
        process.wait()
        self._end()
        return time.monotonic() - ready if ready is not None else 0.0

    def _spawn(self) -> "subprocess.Popen[bytes]":
        how = self._how
        how.log.parent.mkdir(parents=True, exist_ok=True)
        if how.log.exists():
            how.log.replace(how.log.with_name(f"{how.log.name}.before"))
        descriptor = os.open(how.log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-I", guard.__file__, str(how.grace_seconds), str(how.nice), *how.command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **how.environment},
                start_new_session=True,
            )

    def _await_ready(self, process: "subprocess.Popen[bytes]") -> bool:
        start = time.monotonic()
        while process.poll() is None and self._state != "stopped":
            seconds = time.monotonic() - start
            if self._is_healthy():
                with self._changed:
                    if self._state == "starting":
                        self._state = "ready"
                    self._changed.notify_all()
                self._progress("ready", seconds)
                return True
            if seconds > self._how.start_seconds:
                self._timed_out = True
                return False
            log = _tail(self._how.log)
            stages = [stage for pattern, stage in self._how.stages if re.search(pattern, log)]
            self._progress(stages[-1] if stages else "starting", seconds)
            time.sleep(_POLL_SECONDS)
        return False

    def _is_healthy(self) -> bool:
        try:
            return httpx.get(self._how.health, timeout=5.0, trust_env=False).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _end_unresponsive(self, starts: int) -> None:
        """Ends a server that does not answer, unless another was started meanwhile; the watcher restarts it."""
        with self._changed:
            if self.starts == starts and self._process and self._process.poll() is None:
                logger.warning(
                    "the %s server runs but has not answered for %.0f s", self._how.name, _UNRESPONSIVE_SECONDS
                )
                self._state = "starting"
                self._end()

    def _end(self, *, at_once: bool = False) -> None:
        """Closes the guard's input, which ends everything under it."""
        stdin = self._process.stdin if self._process else None
        if stdin is None or stdin.closed:
            return
        with suppress(BrokenPipeError):  # the guard has already ended
            if at_once:
                stdin.write(b"!")
            stdin.close()

    def _death_report(self) -> str:
        code = self._process.returncode if self._process else None
        how = f"was not ready after {self._how.start_seconds:.0f} s" if self._timed_out else f"ended with code {code}"
        log = self._how.log
        return f"the {self._how.name} server {how}; its log says: {_summarize(_tail(log))} (whole log: {log})"


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


def _summarize(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b\w*(Error|Exception)\b.*:", line)]
    last = list(dict.fromkeys(errors or lines))[-_TAIL_LINES:]
    return " | ".join(line[-_TAIL_WIDTH:] for line in last) or "nothing"


# Niceness of a server on a CPU: its threads fill the cores, and a question's embedding, which is short, would wait for
