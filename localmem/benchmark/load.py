"""Load: many users talk at once in a closed loop, each waiting for its reply and a while longer before it goes on.

Measures how long a user's turn takes to be acknowledged (durable), and the whole chat turn. Everything is real but the
backbone, whose answers come after given times. Knows agents by what `new_agent` gives, and no store.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from time import perf_counter, sleep

from localmem.chat.agent import ChatAgent
from localmem.errors import LocalmemError
from localmem.types import Prompt

NewAgent = Callable[[str], ChatAgent]

_PERCENTILES = (50, 90, 95, 99)
_TEXT = """
I we my the a garden sister train tomorrow bought lost green seven piano doctor moved again because market often never
tea cycling Lisbon winter job letter broken evening called about her his with without more less blue
"""
_WORDS = tuple(_TEXT.split())


@dataclass(frozen=True, slots=True)
class Plan:
    """`turns` for each user or `seconds` for all, whichever ends first; `think` is the mean pause in seconds.

    `words` of a user's turn, `answer` of a reply. `first_token` and `per_token` are the backbone's times in seconds.
    """

    users: int = 100
    turns: int | None = 20
    seconds: float | None = None
    think: float = 1.0
    words: int = 20
    answer: int = 30
    first_token: float = 0.2
    per_token: float = 0.02
    seed: int = 0

    @property
    def backbone_seconds(self) -> float:
        """What the scripted backbone takes for one reply."""
        return self.first_token + self.per_token * (self.answer - 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """One chat turn: when it began (seconds from the start of the run), and how long it took in milliseconds."""

    user: str
    number: int
    began: float
    acknowledged_ms: float
    turn_ms: float


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run gave. `acknowledged` are the texts of turns that were said to be durable, by user and turn id."""

    samples: Sequence[Sample]
    acknowledged: dict[str, dict[str, str]]
    failed: Counter[str]
    seconds: float

    def figures(self, plan: Plan) -> dict[str, object]:
        """Percentiles in milliseconds, and turns a second."""
        whole = [sample.turn_ms for sample in self.samples]
        return {
            "turns": len(self.samples),
            "failed": dict(self.failed),
            "seconds": round(self.seconds, 3),
            "turns_per_second": round(len(self.samples) / self.seconds, 2),
            "acknowledged_ms": percentiles([sample.acknowledged_ms for sample in self.samples]),
            "turn_ms": percentiles(whole),
            "beyond_backbone_ms": percentiles([turn - 1000 * plan.backbone_seconds for turn in whole]),
        }


def script(plan: Plan) -> Callable[[Prompt], str]:
    """What the backbone says: so many words."""
    text = " ".join(_WORDS[number % len(_WORDS)] for number in range(plan.answer))
    return lambda _prompt: text


def run(plan: Plan, new_agent: NewAgent) -> Measured:
    """Talk. Each user has a thread; they begin at different moments of their first cycle of reply and pause."""
    agents = {f"user{number:04d}": new_agent(f"user{number:04d}") for number in range(plan.users)}
    gate = threading.Barrier(plan.users + 1)
    users = [_User(plan, name, agent, gate) for name, agent in agents.items()]
    threads = [threading.Thread(target=user.talk, name=user.name, daemon=True) for user in users]
    for thread in threads:
        thread.start()
    gate.wait()
    began = perf_counter()
    for thread in threads:
        thread.join()
    return Measured(
        samples=[sample for user in users for sample in user.samples],
        acknowledged={user.name: user.acknowledged for user in users},
        failed=sum((user.failed for user in users), Counter()),
        seconds=perf_counter() - began,
    )


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Nearest-rank percentiles, mean and largest, to the microsecond when the values are milliseconds."""
    if not values:
        return {}
    ordered = sorted(values)
    ranks = {f"p{rank}": ordered[max(0, -(-rank * len(ordered) // 100) - 1)] for rank in _PERCENTILES}
    found = {**ranks, "mean": sum(ordered) / len(ordered), "max": ordered[-1]}
    return {name: round(value, 3) for name, value in found.items()}


def rows(measured: Measured) -> list[dict[str, object]]:
    """The samples as they are written to a file."""
    return [asdict(sample) for sample in measured.samples]


class _User:
    """One user, on one thread."""

    def __init__(self, plan: Plan, name: str, agent: ChatAgent, gate: threading.Barrier) -> None:
        self.name = name
        self.samples: list[Sample] = []
        self.acknowledged: dict[str, str] = {}
        self.failed: Counter[str] = Counter()
        self._plan = plan
        self._agent = agent
        self._gate = gate
        self._chance = random.Random(f"{plan.seed}/{name}")  # noqa: S311  # words and pauses, no secret

    def talk(self) -> None:
        """Until the turns are said or the time is over."""
        self._gate.wait()
        began = perf_counter()
        sleep((self._plan.think + self._plan.backbone_seconds) * self._chance.random())
        number = 0
        while not self._is_over(number, perf_counter() - began):
            try:
                self.samples.append(self._turn(number, began))
            except LocalmemError as error:
                self.failed[type(error).__name__] += 1
            number += 1
            sleep(self._plan.think * (0.5 + self._chance.random()))

    def _is_over(self, number: int, passed: float) -> bool:
        plan = self._plan
        return (plan.turns is not None and number >= plan.turns) or (
            plan.seconds is not None and passed >= plan.seconds
        )

    def _turn(self, number: int, began: float) -> Sample:
        text = " ".join(self._chance.choices(_WORDS, k=self._plan.words))
        start = perf_counter()
        session = self._agent.hear(text, datetime.now(UTC))
        heard = perf_counter()
        self.acknowledged[session.turns[-1].id] = text
        pieces = self._agent.reply(session.id)
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                done = perf_counter()
                self.acknowledged[end.value.turn.id] = end.value.turn.text
                return Sample(self.name, number, start - began, 1000 * (heard - start), 1000 * (done - start))
