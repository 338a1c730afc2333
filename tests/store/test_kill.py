"""A process that is killed loses nothing it acknowledged and leaves nothing half done, wherever the kill falls.

Two lives are led at once and cut short by SIGKILL at random points: while the store is opened for the first time, after
a random number of acknowledged steps and a random moment more. After each kill the store must hold, byte for byte of
its export, what the acknowledged steps made, or that and the one step that was under way.
"""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import islice
from pathlib import Path

import pytest

from localmem.errors import NotFound
from localmem.store import Store
from tests.store import scripted_life
from tests.store.scripted_life import STEPS, USERS

pytestmark = pytest.mark.slow

KILLS = 200
_PER_STORE = 5
_SEED = 20260302


def _state(store: Store, user: str) -> str:
    """A digest of all that the store holds for the user."""
    try:
        lines = "\n".join(store.export(user))
    except NotFound:
        lines = ""
    vectors = store.embeddings.get("encoder", [f"{user}{day}" for day in range(STEPS // 10)])
    return sha256(f"{lines}\n{sorted(vectors)}".encode()).hexdigest()


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What the store holds after each number of steps of a life that nothing disturbs."""
    lines_by_user: dict[str, list[str]] = {user: [] for user in USERS}
    with Store.open(tmp_path_factory.mktemp("undisturbed")) as store:
        for user in USERS:
            user_journals = scripted_life.journals(store, user)
            lines_by_user[user].append(_state(store, user))
            for number in range(STEPS):
                scripted_life.step(store, user_journals, user, number)
                lines_by_user[user].append(_state(store, user))
    return lines_by_user


class _Life:
    """One store, the lives that are led in it, and how far they have come."""

    def __init__(self, place: Path, states: dict[str, list[str]], chance: random.Random) -> None:
        self.place = place
        self.chance = chance
        self.states = states
        self.acknowledged = dict.fromkeys(USERS, 0)
        self.seen: Counter[str] = Counter()

    def kill(self) -> None:
        """Lead the lives on in a process of their own, kill it at a random point, and look at what is left."""
        command = [sys.executable, scripted_life.__file__, str(self.place), *map(str, self.acknowledged.values())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            lines = iter(process.stdout.readline, b"")
            assert next(lines) == b"open\n", process.stderr.read().decode()
            remaining = sum(STEPS - count for count in self.acknowledged.values())
            if self.chance.random() < 0.25:
                time.sleep(self.chance.uniform(0, 0.2))
            else:
                self._take(islice(lines, self.chance.randint(0, min(40, remaining))))
                time.sleep(self.chance.uniform(0, 0.01))
            process.kill()
            self._take(lines)
            assert process.wait() == -9, process.stderr.read().decode()
        self._look()

    def _take(self, lines: Iterator[bytes]) -> None:
        for line in lines:
            if line.endswith(b"\n"):  # a line cut in half was not yet an acknowledgement
                user, number = line.decode().split()
                assert int(number) == self.acknowledged[user]
                self.acknowledged[user] += 1
                self.seen["acknowledged"] += 1

    def _look(self) -> None:
        with Store.open(self.place) as store:
            assert store.problems() == []
            for user, count in self.acknowledged.items():
                states = self.states[user][count : count + 2]
                assert _state(store, user) in states, f"{user} after {count} steps"
                self.seen["more"] += _state(store, user) != states[0]
        self.seen["kills"] += 1


def test_killed_at_200_random_points(
    states: dict[str, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lead(number: int) -> Counter[str]:
        life = _Life(tmp_path / str(number), states, random.Random(_SEED + number))
        for _ in range(_PER_STORE):
            life.kill()
        return life.seen

    with ThreadPoolExecutor(2) as pool:
        seen = sum(pool.map(lead, range(KILLS // _PER_STORE)), Counter[str]())
    assert seen["kills"] == KILLS
    assert seen["acknowledged"] > KILLS
    with capsys.disabled():
        sys.stdout.write(
            f"\nkilled {seen['kills']} times after {seen['acknowledged']} acknowledged steps: all of them are there; "
            f"{seen['more']} steps under way were whole, none was half done\n"
        )
