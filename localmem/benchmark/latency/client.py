"""One user talks to an agent, or sends the same prompts to the bare backbone: each request becomes a raw sample.

Knows agents by what it is given and the clock; knows no load and no files.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial, reduce
from itertools import pairwise
from typing import Protocol, TypeVar

from localmem.benchmark.latency.result import Kind, Sample
from localmem.benchmark.latency.stopwatch import AFTER, Clock, Reading
from localmem.chat.agent import ChatAgent, Ready
from localmem.chat.prefetch import heard_ahead
from localmem.errors import LocalmemError
from localmem.llm.base import LLM
from localmem.llm.wrappers import Spent
from localmem.types import Completion, Prompt, Reply, Session

End = TypeVar("End")

_STEP = timedelta(minutes=1)
_REPLY = ("first_token", "decode")


class Home(Protocol):
    """Where agents live: a runtime is one."""

    def agent(self, user: str) -> ChatAgent:
        """The user's agent, with the bank as it is in the store."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn that was answered: its sample, and the prompt of its reply, to be sent to the bare backbone too."""

    sample: Sample
    prompt: Prompt | None


@dataclass(slots=True)
class Talk:
    """One user's side of a point. `began` is the clock's time at which the point did; `limit` tokens a reply may have.

    A turn is what a server does for one: the agent is fetched, the bank looked at, the words made durable, the reply
    streamed.
    """

    point: str
    user: str
    home: Home
    clock: Clock
    words: Iterator[str]
    now: datetime
    began: float
    limit: int
    session: str = ""
    number: int = 0
    asked: list[Asked] = field(default_factory=list)

    def open(self, name: str) -> None:
        """From now on the user talks in this session."""
        self.session, self.number, self.asked = f"{self.user}.{name}", 0, []

    def turn(self, due: float | None = None, *, warm_up: bool = False) -> Sample:
        """One turn of the user, and its reply. `due` is the clock's time at which it should have been sent."""
        self.number += 1
        self.now += _STEP
        text = next(self.words)
        with self.clock.measuring() as reading:
            timed = _Timed(self, "turn", reading, self.number, reading.began if due is None else due, warm_up)
            try:
                stamps, reply = _drained(self._begin(text), self.clock)
            except LocalmemError as error:
                asked = Asked(timed.failed(error), None)
            else:
                sample = timed.sample(stamps, reply.completion, self.clock.now())
                asked = Asked(sample, reply.prompt)
        self.asked.append(asked)
        return asked.sample

    def bare(self, llm: LLM, asked: Asked, due: float | None = None) -> Sample | None:
        """The prompt of a turn once more, straight to the backbone. None for a turn that failed."""
        if asked.prompt is None:
            return None
        with self.clock.measuring() as reading:
            began = reading.began if due is None else due
            timed = _Timed(self, "bare", reading, asked.sample.turn, began, asked.sample.warm_up)
            try:
                stamps, completion = _drained(llm.stream(asked.prompt), self.clock)
            except LocalmemError as error:
                return timed.failed(error)
            return timed.sample(stamps, completion, self.clock.now())

    def close(self) -> None:
        """The session is over; whoever remembers it does so later."""
        self.home.agent(self.user).close(self.session)

    def _begin(self, text: str) -> Generator[str, None, Reply]:
        agent = self.home.agent(self.user)
        agent.refresh()
        with self.clock.stage("store"):  # what is waited for beyond what is recalled meanwhile
            hear = partial(agent.hear, text, self.now, self.session)
            session, ready = heard_ahead(hear, partial(self._prepared, agent))
        adjust = partial(replace, max_tokens=self.limit)
        return agent.reply(session.id, dialogue=session, adjust=adjust, ready=ready)

    def _prepared(self, agent: ChatAgent, dialogue: Session) -> Ready:
        with self.clock.stage("prompt"):
            return agent.prepare(dialogue)


@dataclass(frozen=True, slots=True)
class _Timed:
    """A request under way, and what its sample is made of."""

    talk: Talk
    kind: Kind
    reading: Reading
    turn: int
    due: float
    warm_up: bool

    def sample(self, stamps: list[float], completion: Completion, ended: float) -> Sample:
        """`stamps` are the clock's times of the pieces; a reply of nothing is timed by its end."""
        first, last = (stamps[0], stamps[-1]) if stamps else (ended, ended)
        ttft, e2el = 1000 * (first - self.due), 1000 * (last - self.due)
        return replace(
            self._bare_sample(e2el),
            ttft_ms=round(ttft, 4),
            itl_ms=tuple(round(1000 * (after - before), 4) for before, after in pairwise(stamps)),
            input_tokens=completion.usage.input,
            cached_tokens=completion.usage.cached,
            output_tokens=completion.usage.output,
            stages=self._stages(ttft, e2el, 1000 * (ended - last)) if self.kind == "turn" else {},
            calls=dict(self.reading.calls),
        )

    def failed(self, error: LocalmemError) -> Sample:
        """What the request came to nothing by."""
        taken = 1000 * (self.talk.clock.now() - self.due)
        return replace(self._bare_sample(taken), error=f"{type(error).__name__}: {error}")

    def _bare_sample(self, e2el: float) -> Sample:
        return Sample(
            point=self.talk.point,
            kind=self.kind,
            user=self.talk.user,
            session=self.talk.session,
            turn=self.turn,
            sent=round(self.due - self.talk.began, 4),
            ttft_ms=None,
            e2el_ms=round(e2el, 4),
            warm_up=self.warm_up,
        )

    def _stages(self, ttft: float, e2el: float, behind: float) -> dict[str, float]:
        """In order: up to the first token, where what no part took is the prompt's building; decoding; behind it."""
        took = self.reading.stages
        late = 1000 * (self.reading.began - self.due)
        before = {"queue": late} if late > 0 else {}
        before |= {name: value for name, value in took.items() if not name.startswith(AFTER) and name not in _REPLY}
        first = took.get("first_token", 0.0)
        left = ttft - first - sum(before.values())
        prompt = before.pop("prompt", 0.0) + max(left, 0.0)
        after = {name: value for name, value in took.items() if name.startswith(AFTER)}
        rest = max(behind - sum(after.values()), 0.0)
        reply = {"prompt": prompt, "first_token": first, "decode": e2el - ttft}
        return {name: round(value, 4) for name, value in {**before, **reply, **after, f"{AFTER}other": rest}.items()}


def end_sample(point: str, user: str, session: str, sent: float, reading: Reading, seconds: float, ok: bool) -> Sample:
    """A session's end that took `seconds` in all; `reading` is what was measured of it."""
    spent = reduce(Spent.plus, reading.calls.values(), Spent())
    whole = 1000 * seconds
    other = max(whole - sum(reading.stages.values()), 0.0)
    return Sample(
        point=point,
        kind="end",
        user=user,
        session=session,
        turn=0,
        sent=round(sent, 4),
        ttft_ms=None,
        e2el_ms=round(whole, 4),
        input_tokens=spent.input_tokens,
        cached_tokens=spent.cached_tokens,
        output_tokens=spent.output_tokens,
        stages={name: round(value, 4) for name, value in {**reading.stages, "other": other}.items()},
        calls=dict(reading.calls),
        error=None if ok else "the session could not be remembered; see the log",
    )


def _drained(pieces: Generator[str, None, End], clock: Clock) -> tuple[list[float], End]:
    """When each piece came, and what the generator returned."""
    stamps: list[float] = []
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            return stamps, end.value
        if piece:
            stamps.append(clock.now())
