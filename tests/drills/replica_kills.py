"""Two servers over one PostgreSQL store, killed again and again, or replaced by a later release: users go on.

Each user sends the whole dialogue with every turn, as chat clients do, changes servers now and then, and repeats a
request that broke off. In the end every acknowledged turn is in the store once, and in the memory once.
"""

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from localmem.store import Store
from tests.drills.clients import GONE, check_memory, read_reply
from tests.drills.processes import Victim, Victims
from tests.drills.victims import VERBATIM, open_runtime

_PATIENCE = 120  # seconds for which a turn is sent again and again


@dataclass
class Replicas:
    """The servers by their places; a killed one is replaced by another on a port of its own."""

    victims: Victims
    home: Path
    database: str
    ports: list[int] = field(default_factory=list)
    _running: list[Victim] = field(default_factory=list)

    def start(self, count: int) -> None:
        """Start so many."""
        for place in range(count):
            self._running.append(self._new(place))
            self.ports.append(int(self._running[place].acknowledged()[0]))

    def replace(self, place: int) -> None:
        """Kill one with SIGKILL and start another in its place."""
        assert self._running[place].kill(), "a server ended by itself"
        self._running[place] = self._new(place)
        self.ports[place] = int(self._running[place].acknowledged()[0])

    def stop(self) -> None:
        """Kill all."""
        for victim in self._running:
            victim.kill()

    def _new(self, place: int) -> Victim:
        server = self.victims.start("serve", str(self.home / str(place)), "0.005", "128", "128", self.database)
        server.wait_for(1)
        return server


class Roamer:
    """One user, who talks to whichever server answers."""

    def __init__(self, number: int, seed: int) -> None:
        self.user, self._chance = f"user{number:04d}", random.Random(f"{seed}/{number}")
        self._headers = {"authorization": f"Bearer key-of-{number:04d}", "content-type": "application/json"}
        self._is_named, self._dialogue, self._session = number % 2 == 0, list[dict[str, str]](), 0
        self._count, self._place = 0, number % 2
        self.acknowledged: dict[str, str] = {}
        self.totals: Counter[str] = Counter()
        self.errors: list[str] = []

    def talk(self, replicas: Replicas, stop: threading.Event, pause: float) -> None:
        """Chat until told to stop; a turn that was begun is repeated until it is answered or given up."""
        while not stop.is_set() and not self.errors:
            text = f"{self.user} keeps {self._count} bees in a garden."
            self._count += 1
            self._dialogue.append({"role": "user", "content": text})
            reply = self._ask(replicas, text)
            self._dialogue.append({"role": "assistant", "content": reply or ""})
            if reply is None or self._chance.random() < 0.1:
                self._dialogue, self._session = [], self._session + 1
            if self._chance.random() < 0.3:
                self._place = self._chance.randrange(len(replicas.ports))
            stop.wait(pause * 2 * self._chance.random())

    def _ask(self, replicas: Replicas, text: str) -> str | None:
        """The reply; None where nobody gives one for two minutes: the user gives up, and opens a new chat."""
        end = time.monotonic() + _PATIENCE
        while True:
            self.totals["requests"] += 1
            try:
                reply = self._request(replicas.ports[self._place])
            except GONE:
                self.totals["broken off"] += 1
                self._place = (self._place + 1) % len(replicas.ports)
            else:
                if reply is not None:
                    self.acknowledged[text] = reply
                    return reply
            if self.errors or time.monotonic() > end:
                self.totals["given up"] += 1
                return None
            time.sleep(0.05)

    def _request(self, port: int) -> str | None:
        """The reply; None for one that is refused for now. Raises what a lost connection raises."""
        body = {"model": "localmem", "messages": self._dialogue, "stream": self._chance.random() < 0.7}
        named = {"x-localmem-session": f"{self.user}-{self._session}"} if self._is_named else {}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {**self._headers, **named})
            response = connection.getresponse()
            if response.status == 200:
                return read_reply(response, streams=bool(body["stream"]))
            self.totals[f"status {response.status}"] += 1
            if response.status not in (429, 503):
                self.errors.append(f"{response.status} {response.read()!r}")
            return None
        finally:
            connection.close()


def kill_replicas(
    victims: Victims, home: Path, database: str, *, users: int, kills: int, every: float, pause: float, seed: int
) -> Counter[str]:
    """Kill one of two servers `kills` times, `every` so many seconds; what was acknowledged in all."""
    chance, totals = random.Random(seed), Counter[str]({"kills": kills})
    with _talking(Replicas(victims, home, database), users, pause, seed, totals) as replicas:
        for _ in range(kills):
            time.sleep(every * (0.8 + 0.4 * chance.random()))
            replicas.replace(chance.randrange(2))
    return totals


def upgrade_replicas(
    old: Victims, new: Victims, home: Path, database: str, *, users: int, seconds: float, pause: float, seed: int
) -> Counter[str]:
    """Two servers of an earlier release are replaced one after another; in between both releases serve one store."""
    totals = Counter[str]()
    with _talking(Replicas(old, home, database), users, pause, seed, totals) as replicas:
        for place in range(2):
            time.sleep(seconds)
            replicas.victims = new
            replicas.replace(place)
        time.sleep(seconds)
    return totals


@contextmanager
def _talking(replicas: Replicas, users: int, pause: float, seed: int, totals: Counter[str]) -> Iterator[Replicas]:
    """Two servers under load; after the block it is checked, and counted in `totals`."""
    stop = threading.Event()
    replicas.start(2)
    roamers = [Roamer(number, seed) for number in range(users)]
    threads = [threading.Thread(target=roamer.talk, args=(replicas, stop, pause)) for roamer in roamers]
    for thread in threads:
        thread.start()
    try:
        yield replicas
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        replicas.stop()
    for roamer in roamers:
        totals.update(roamer.totals)
    totals["acknowledged turns"] = sum(len(roamer.acknowledged) for roamer in roamers)
    _check(roamers, replicas.home, replicas.database)


def _check(roamers: list[Roamer], home: Path, database: str) -> None:
    """Nothing acknowledged is lost and nothing is doubled, in the log and in the memory. Raises AssertionError."""
    with Store.open(database) as store:
        for roamer in roamers:
            assert roamer.errors == [], roamer.errors[:3]
            sessions = [store.session(roamer.user, info.id) for info in store.sessions(roamer.user)]
            user_turns = Counter(turn.text for each in sessions for turn in each.turns if turn.role == "user")
            assert not user_turns or max(user_turns.values()) == 1, (
                f"{roamer.user}: doubled: {user_turns.most_common(2)}"
            )
            assert roamer.acknowledged.keys() <= user_turns.keys(), f"{roamer.user}: a turn is lost"
            replies = Counter(turn.text for each in sessions for turn in each.turns if turn.role == "assistant")
            lost = set(roamer.acknowledged.values()) - replies.keys()
            assert not lost, f"{roamer.user}: lost replies: {sorted(lost)[:2]}"
            for info in store.sessions(roamer.user, "open"):
                store.journal(roamer.user, VERBATIM).close(info.id)
    with open_runtime(home / "check", VERBATIM, database=database) as runtime:
        for roamer in roamers[:: max(1, len(roamers) // 5)]:
            check_memory(runtime, roamer.user)
