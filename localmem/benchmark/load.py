"""Load benchmark: many users talk at once in a closed loop; each waits for its reply and pauses before the next turn.

Measures how long a turn takes to be durable, and the whole chat turn. Everything is real except for the backbone, whose
answers take fixed times. Afterwards the store is opened again and every acknowledged turn is looked up in it.
"""

import os
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING

from localmem.benchmark.recipes import LoadRecipe
from localmem.chat.conversation import Conversation
from localmem.errors import LocalmemError
from localmem.llm.base import drain
from localmem.types import Prompt

if TYPE_CHECKING:
    from localmem.store import Store

NewAgent = Callable[[str], Conversation]

_PERCENTILES = (50, 90, 95, 99)
_PAGE = bytes(4096)  # of the database
_TEXT = """I we my the a garden sister train tomorrow bought lost green seven piano doctor moved again because market
often never tea cycling Lisbon winter job letter broken evening called about her his with without more less blue"""
_WORDS = _TEXT.split()


@dataclass(frozen=True, slots=True)
class TurnSample:
    """One chat turn: when it began (seconds from the start of the run), and milliseconds until durable and answered."""

    user: str
    number: int
    sent: float
    acknowledged_ms: float
    turn_ms: float


@dataclass(frozen=True, slots=True)
class LoadResult:
    """`acknowledged` are the texts of the turns that were reported durable, by user and turn id."""

    samples: Sequence[TurnSample]
    acknowledged: dict[str, dict[str, str]]
    failed: Counter[str]
    seconds: float

    def figures(self, recipe: LoadRecipe) -> dict[str, object]:
        """Percentiles in milliseconds, and turns per second."""
        turn_ms = [sample.turn_ms for sample in self.samples]
        return {
            "turns": len(self.samples),
            "failed": dict(self.failed),
            "seconds": round(self.seconds, 3),
            "turns_per_second": round(len(self.samples) / self.seconds, 2),
            "acknowledged": sum(map(len, self.acknowledged.values())),
            "acknowledged_ms": percentiles([sample.acknowledged_ms for sample in self.samples]),
            "turn_ms": percentiles(turn_ms),
            "beyond_backbone_ms": percentiles([turn - 1000 * recipe.backbone_seconds for turn in turn_ms]),
        }

    def lost_turns(self, store: "Store") -> list[str]:
        """Ids of acknowledged turns that a store, opened again after the run, does not hold."""
        lost: list[str] = []
        for user, texts in self.acknowledged.items():
            sessions = [store.session(user, info.id) for info in store.sessions(user)]
            stored = {turn.id: turn.text for session in sessions for turn in session.turns}
            lost += [turn_id for turn_id, text in texts.items() if stored.get(turn_id) != text]
        return lost


def reply_script(recipe: LoadRecipe) -> Callable[[Prompt], str]:
    """The scripted backbone's reply."""
    text = " ".join(_WORDS[number % len(_WORDS)] for number in range(recipe.answer))
    return lambda _prompt: text


def run_load(recipe: LoadRecipe, new_agent: NewAgent) -> LoadResult:
    """Let the users talk. Each has a thread; they begin at different moments of their first turn and pause."""
    gate = threading.Barrier(recipe.users + 1)
    names = [f"user{number:04d}" for number in range(recipe.users)]
    users = [_User(recipe, name, new_agent(name), gate) for name in names]
    threads = [threading.Thread(target=user.run, name=user.name, daemon=True) for user in users]
    for thread in threads:
        thread.start()
    gate.wait()
    start = perf_counter()
    for thread in threads:
        thread.join()
    return LoadResult(
        samples=[sample for user in users for sample in user.samples],
        acknowledged={user.name: user.acknowledged for user in users},
        failed=sum((user.failed for user in users), Counter()),
        seconds=perf_counter() - start,
    )


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Nearest-rank percentiles, mean and maximum, rounded to three decimals."""
    if not values:
        return {}
    ordered = sorted(values)
    ranks = {f"p{rank}": ordered[max(0, -(-rank * len(ordered) // 100) - 1)] for rank in _PERCENTILES}
    figures = {**ranks, "mean": sum(ordered) / len(ordered), "max": ordered[-1]}
    return {name: round(value, 3) for name, value in figures.items()}


def fsync_ms(folder: Path, times: int) -> list[float]:
    """Milliseconds of each of `times` page writes with fsync, to a temporary file: the floor of a durable turn."""
    folder.mkdir(parents=True, exist_ok=True)
    samples = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix="fsync-", buffering=0) as file:
        for _ in range(times):
            start = perf_counter()
            file.write(_PAGE)
            os.fsync(file.fileno())
            samples.append(1000 * (perf_counter() - start))
    return samples


class _User:
    def __init__(self, recipe: LoadRecipe, name: str, agent: Conversation, gate: threading.Barrier) -> None:
        self.name = name
        self.samples: list[TurnSample] = []
        self.acknowledged: dict[str, str] = {}
        self.failed: Counter[str] = Counter()
        self._recipe = recipe
        self._agent = agent
        self._gate = gate
        self._random = random.Random(f"{recipe.seed}/{name}")  # noqa: S311  # words and pauses, not a secret

    def run(self) -> None:
        self._gate.wait()
        start = perf_counter()
        sleep((self._recipe.think + self._recipe.backbone_seconds) * self._random.random())
        number = 0
        while not self._is_over(number, perf_counter() - start):
            try:
                self.samples.append(self._send_turn(number, start))
            except LocalmemError as error:
                self.failed[type(error).__name__] += 1
            number += 1
            sleep(self._recipe.think * (0.5 + self._random.random()))

    def _is_over(self, number: int, elapsed: float) -> bool:
        turns, seconds = self._recipe.turns, self._recipe.seconds
        return (turns is not None and number >= turns) or (seconds is not None and elapsed >= seconds)

    def _send_turn(self, number: int, start: float) -> TurnSample:
        text = " ".join(self._random.choices(_WORDS, k=self._recipe.words))
        sent = perf_counter()
        session = self._agent.log_turns(text, datetime.now(UTC))
        durable = perf_counter()
        self.acknowledged[session.turns[-1].id] = text
        reply = drain(self._agent.reply(session.id))
        answered = perf_counter()
        self.acknowledged[reply.turn.id] = reply.turn.text
        return TurnSample(self.name, number, sent - start, 1000 * (durable - sent), 1000 * (answered - sent))
