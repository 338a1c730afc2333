"""Many users of the real server for a long time: no error, nothing lost, memory bounded, and refusals where it is full.

The backbone is scripted, everything else is real; the server is a process of its own.
"""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from localmem.benchmark.load import percentiles
from localmem.store import Store
from tests.drills.clients import Client, Notes, check_notes
from tests.drills.processes import Victims

_SAMPLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """Users who pause `think` seconds between turns; a reply has about 25 words of `per_token` seconds each."""

    users: int = 200
    seconds: float = 600.0
    think: float = 20.0
    per_token: float = 0.02
    threads: int = 128
    waiting: int = 128


def soak(victims: Victims, home: Path, plan: SoakPlan) -> dict[str, object]:
    """Figures of the run. Raises AssertionError for an error, and for a turn that is lost."""
    limits = map(str, (plan.per_token, plan.threads, plan.waiting))
    server = victims.start("serve", str(home), *limits)
    server.wait_for(1)
    port, stop = int(server.acknowledged()[0]), threading.Event()
    notes = [Notes() for _ in range(plan.users)]
    clients = [Client(number, each, random.Random(number)) for number, each in enumerate(notes)]
    threads = [threading.Thread(target=client.talk, args=(port, stop, plan.think)) for client in clients]
    for thread in threads:
        thread.start()
    resident = _watch(server.pid, plan.seconds, stop)
    stop.set()
    for thread in threads:
        thread.join()
    assert server.kill(), "the server ended by itself"
    with Store.open(home) as store:
        assert store.problems() == []
        for number, each in enumerate(notes):
            check_notes(store, f"user{number:04d}", each)
    return _figures(notes, resident)


def _watch(pid: int, seconds: float, stop: threading.Event) -> list[float]:
    """Megabytes that the process holds, each second."""
    process, resident = psutil.Process(pid), list[float]()
    for _ in range(max(1, round(seconds / _SAMPLE_SECONDS))):
        stop.wait(_SAMPLE_SECONDS)
        resident.append(process.memory_info().rss / 1e6)
    return resident


def _figures(notes: Sequence[Notes], resident: Sequence[float]) -> dict[str, object]:
    third = len(resident) // 3
    memory = {"first": resident[:third], "second": resident[third : 2 * third], "last": resident[2 * third :]}
    return {
        "replies": sum(len(each.replies) for each in notes),
        "ended sessions": sum(len(each.ended) for each in notes),
        "exports": sum(each.exports for each in notes),
        "refused with 429": sum(each.refused for each in notes),
        "errors": sum(len(each.errors) for each in notes),
        "reply_ms": percentiles([1000 * seconds for each in notes for seconds in each.seconds]),
        "largest_mb_by_third": {name: round(max(values, default=0.0)) for name, values in memory.items()},
    }
