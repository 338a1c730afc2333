"""Several processes that serve one socket: started by fork, replaced when one is killed, stopped together.

Forks before anything starts a thread or loads weights, so it imports nothing of the server.
"""

import os
import signal
import sys
from collections.abc import Callable


def start_workers(count: int, notify: Callable[[str], None]) -> int:
    """In each of `count` new processes its number; the caller's own process watches them and never returns.

    It exits with 0 once SIGINT or SIGTERM has stopped them all, else with the status of the first that failed.
    """
    workers: dict[int, int] = {}
    for number in range(count):
        if not _fork(workers, number):
            return number
    is_stopping, status = False, 0

    def stop(*_: object) -> None:
        nonlocal is_stopping
        is_stopping = True
        for worker in workers:
            os.kill(worker, signal.SIGTERM)

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    while workers:
        worker, raw = os.wait()
        number, code = workers.pop(worker), os.waitstatus_to_exitcode(raw)
        if code < 0 and not is_stopping:
            notify(f"worker {number} was killed by signal {-code}; starting another")
            if not _fork(workers, number):
                return number
        elif not is_stopping:
            status = code
            stop()
    sys.exit(status)


def _fork(workers: dict[int, int], number: int) -> int:
    """The id of the new process, 0 in itself; Ctrl-C at a terminal reaches it through its parent alone."""
    worker = os.fork()
    if worker:
        workers[worker] = number
        return worker
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return 0
