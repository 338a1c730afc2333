"""Runs `localmem` commands in processes of their own, forked from one that has imported what they share.

A test of a command costs a tenth of a second in place of more than one. Reads a request in JSON from each line of
stdin (`arguments`, `environment`, `folder`, `files` for stdin, stdout and stderr, `timeout` in seconds), and writes the
exit code. What a new interpreter does is tested by `test_main.py`, which starts one.
"""

import json
import os
import signal
import sys
import time
from importlib import import_module
from types import ModuleType
from typing import Any

_SHARED = ("localmem.runtime.inspection", "localmem.cli.memory", "localmem.cli.conversations", "localmem.cli.overview")
_FLAGS = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
_POLL = 0.005  # seconds


def serve() -> None:
    """Fork a process for each request until stdin ends; returns in each of them."""
    for module in _SHARED:
        import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            _become_command(request)
            return
        sys.stdout.write(f"{_wait(child, request['timeout'])}\n")
        sys.stdout.flush()
    os._exit(0)


def _become_command(request: dict[str, Any]) -> None:
    """Set up everything that a command can see of its process."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.setsid()
    for number, (path, flags) in enumerate(zip(request["files"], _FLAGS, strict=True)):
        descriptor = os.open(path, flags, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    program = ModuleType("__main__")
    program.__package__ = "localmem"
    sys.modules["__main__"] = program
    package = import_module("localmem").__path__[0]
    sys.argv = [f"{package}/__main__.py", *request["arguments"]]
    sys.path[0] = request["folder"]


def _wait(child: int, timeout: float) -> int:
    """The exit code, negative for a signal. Ends the process and those it started once it takes too long."""
    end = time.monotonic() + timeout
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
        time.sleep(_POLL)


if __name__ == "__main__":
    serve()
    import_module("localmem.cli").main()
