"""The server under load is killed: twelve users chat, end sessions and export; then all that was acknowledged is there
once, every end of a session is whole, and the index answers like a fresh one."""

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from localmem.runtime import Runtime
from localmem.store import Store
from tests.drills.clients import Client, Notes, check_memory, check_notes
from tests.drills.processes import Victims
from tests.drills.victims import VERBATIM, open_runtime

WRITERS = 12
KILLS_IN_ONE_FOLDER = 10
_SAMPLE = 4  # users whose memories are compared with fresh ones at the end of a folder


def kill_server(victims: Victims, work: Path, count: int, seed: int) -> Counter[str]:
    """Kill it `count` times; what was acknowledged in all."""
    chance, totals = random.Random(seed), Counter[str]()
    for first in range(0, count, KILLS_IN_ONE_FOLDER):
        home = work / f"home{first}"
        notes = [Notes() for _ in range(WRITERS)]
        for _ in range(min(KILLS_IN_ONE_FOLDER, count - first)):
            _kill_once(victims, home, notes, chance)
            totals["kills"] += 1
            check_log(home, notes)
        _close_all(home)
        talkers = [f"user{number:04d}" for number, each in enumerate(notes) if each.heard]
        check_memories(home, chance.sample(talkers, min(_SAMPLE, len(talkers))))
        totals["acknowledged turns"] += sum(len(each.heard) + len(each.replies) for each in notes)
        totals["ended sessions"] += sum(len(each.ended) for each in notes)
        totals["exports"] += sum(each.exports for each in notes)
        shutil.rmtree(home)
    return totals


def _kill_once(victims: Victims, home: Path, notes: list[Notes], chance: random.Random) -> None:
    server = victims.start("serve", str(home), "0.002")
    server.wait_for(1)
    port, stop = int(server.acknowledged()[0]), threading.Event()
    clients = [Client(number, each, random.Random(chance.random())) for number, each in enumerate(notes)]
    threads = [threading.Thread(target=client.talk, args=(port, stop)) for client in clients]
    for thread in threads:
        thread.start()
    enough, end = _count(notes) + chance.randint(0, 40), time.monotonic() + 60
    while _count(notes) < enough and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(chance.uniform(0, 0.05))
    assert server.kill(), "the server ended by itself"
    stop.set()
    for thread in threads:
        thread.join()


def _count(notes: list[Notes]) -> int:
    return sum(len(each.heard) for each in notes)


def _close_all(home: Path) -> None:
    with Store.open(home) as store:
        for user in store.users():
            for info in store.sessions(user, "open"):
                store.journal(user, VERBATIM).close(info.id)


def check_log(home: Path, notes: Sequence[Notes]) -> None:
    """After a kill: what was acknowledged is in the log once, and no end of a session is half done."""
    with Store.open(home) as store:
        assert store.problems() == []
        for number, each in enumerate(notes):
            check_notes(store, f"user{number:04d}", each)


def check_memories(home: Path, users: Sequence[str]) -> None:
    """What waits is done: everything is in the memory once, and the index answers like a fresh one."""
    saved = {}
    with open_runtime(home, VERBATIM) as runtime:
        for user in users:
            check_memory(runtime, user)
            saved[user] = _answers(runtime, user)
        runtime.store.indexes.delete_all()
    with open_runtime(home, VERBATIM) as runtime:
        for user in users:
            assert _answers(runtime, user) == saved[user], f"{user}: the saved index differs from a fresh one"


def _answers(runtime: Runtime, user: str) -> list[list[tuple[str, float]]]:
    runtime.forget_agent(user)
    memory = runtime.agent(user).memory
    return [[(hit.unit.id, hit.score) for hit in memory.search(query, 20)] for query in ("bees", "garden 3 keeps")]
