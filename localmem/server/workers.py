"""Several processes that serve one socket: started by fork, replaced when one is killed, stopped together.

Forks before anything starts a thread or loads weights, so it imports nothing of the server.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable


def start_workers(count: int, notify: Callable[[str], None]) -> int:
    """In each of `count` new processes its number; the caller's own process watches them and never returns.

    It exits with 0 once SIGINT, SIGTERM or SIGHUP has stopped them all, else with the status of the first that failed.
    They stop when it is killed, too.
    """
    workers: dict[int, int] = {}
    pipe = os.pipe()  # to which nobody writes: its end is read when this process has gone
    for number in range(count):
        if not _fork(workers, number, pipe):
            return number
    is_stopping, status = False, 0

    def stop(*_: object) -> None:
        nonlocal is_stopping
        is_stopping = True
        for worker in workers:
            os.kill(worker, signal.SIGTERM)

    for each in stop_signals():
        signal.signal(each, stop)
    while workers:
        worker, raw = os.wait()
        number, code = workers.pop(worker), os.waitstatus_to_exitcode(raw)
        if code < 0 and not is_stopping:
            notify(f"worker {number} was killed by signal {-code}; starting another")
            if not _fork(workers, number, pipe):
                return number
        elif not is_stopping:
            status = code
            stop()
    sys.exit(status)


def stop_signals() -> list[signal.Signals]:
    """What stops a server: Ctrl-C, SIGTERM, and a terminal that is closed unless `nohup` has the server stay."""
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [each for each in signals if each != signal.SIGHUP or signal.getsignal(each) != signal.SIG_IGN]


def _fork(workers: dict[int, int], number: int, pipe: tuple[int, int]) -> int:
    """The id of the new process, 0 in itself; Ctrl-C at a terminal reaches it through its parent alone."""
    worker = os.fork()
    if worker:
        workers[worker] = number
        return worker
    os.setpgrp()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in set(stop_signals()) - {signal.SIGINT}:
        signal.signal(each, signal.SIG_DFL)
    os.close(pipe[1])
    threading.Thread(target=_stop_at_end, args=(pipe[0],), name="parent", daemon=True).start()
    return 0


def _stop_at_end(pipe: int) -> None:
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)
