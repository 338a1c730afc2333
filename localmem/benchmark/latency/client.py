"""Simulated users of an agent and of the bare backbone, and timed session ends; each request becomes a raw sample.

Does not depend on the load or on files.
"""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial, reduce
from itertools import pairwise
from typing import Any, Protocol, TypeVar

from localmem.benchmark.latency.result import Kind, Sample
from localmem.benchmark.latency.stopwatch import AFTER, Reading, Stopwatch
from localmem.chat.conversation import Conversation
from localmem.chat.prefetch import hear_and_prepare
from localmem.chat.responder import PreparedReply
from localmem.errors import LocalmemError
from localmem.llm.base import LLM
from localmem.llm.wrappers import PromptUsage
from localmem.types import Completion, Prompt, Reply, Session

Result = TypeVar("Result", bound=Completion | Reply)

_BETWEEN_TURNS = timedelta(minutes=1)
_REPLY_STAGES = ("first_token", "decode")


class Agents(Protocol):
    """Where users' agents come from, such as a Runtime."""

    def agent(self, user: str) -> Conversation:
        """The user's agent, with the bank as it is in the store."""
        ...


@dataclass(frozen=True, slots=True)
class AnsweredTurn:
    """A turn's sample, and the prompt of its reply, to be sent to the bare backbone too; None if the turn failed."""

    sample: Sample
    prompt: Prompt | None


@dataclass(slots=True)
class SimulatedUser:
    """One user of a measurement. `start` is the time the measurement began, `max_tokens` the limit of a reply.

    A turn does what a server does: fetch the agent, look at the bank, make the words durable, stream the reply.
    """

    point: str
    user: str
    agents: Agents
    stopwatch: Stopwatch
    texts: Iterator[str]
    now: datetime
    start: float
    max_tokens: int
    session: str = ""
    number: int = 0
    answered: list[AnsweredTurn] = field(default_factory=list)

    def open_session(self, name: str) -> None:
        """Begin a session; later turns belong to it."""
        self.session, self.number, self.answered = f"{self.user}.{name}", 0, []

    def send_turn(self, due: float | None = None, *, warm_up: bool = False) -> Sample:
        """Send one turn and read its reply. `due` is the time at which it should have been sent."""
        self.number += 1
        self.now += _BETWEEN_TURNS
        text = next(self.texts)
        sample, reply = self._send("turn", self.number, due, warm_up, lambda: self._reply(text))
        self.answered.append(AnsweredTurn(sample, reply.prompt if reply else None))
        return sample

    def send_bare(self, llm: LLM, answered: AnsweredTurn, due: float | None = None) -> Sample | None:
        """Send the prompt of a turn straight to the backbone. None for a turn that failed."""
        prompt, turn = answered.prompt, answered.sample
        if prompt is None:
            return None
        return self._send("bare", turn.turn, due, turn.warm_up, lambda: llm.stream(prompt))[0]

    def close_session(self) -> None:
        """End the session; background threads remember it later."""
        self.agents.agent(self.user).close(self.session)

    def _send(
        self,
        kind: Kind,
        turn: int,
        due: float | None,
        warm_up: bool,
        stream: Callable[[], Generator[str, None, Result]],
    ) -> tuple[Sample, Result | None]:
        """The sample of one request, and what its stream returned; None if it failed."""
        now = self.stopwatch.now
        with self.stopwatch.measure() as reading:
            due = reading.start if due is None else due
            sent = round(due - self.start, 4)
            sample = Sample(self.point, kind, self.user, self.session, turn, sent, None, 0.0, warm_up=warm_up)
            try:
                times, result = _timed_pieces(stream(), now)
            except LocalmemError as error:
                elapsed = round(1000 * (now() - due), 4)
                return replace(sample, e2el_ms=elapsed, error=f"{type(error).__name__}: {error}"), None
            end = now()
        first, last = (times[0], times[-1]) if times else (end, end)  # an empty reply is timed by its end
        ttft, e2el = 1000 * (first - due), 1000 * (last - due)
        completion: Completion = getattr(result, "completion", result)  # type: ignore[arg-type]  # a Reply's, or itself
        sample = replace(
            sample,
            ttft_ms=round(ttft, 4),
            e2el_ms=round(e2el, 4),
            itl_ms=tuple(round(1000 * (later - earlier), 4) for earlier, later in pairwise(times)),
            input_tokens=completion.usage.input,
            cached_tokens=completion.usage.cached,
            output_tokens=completion.usage.output,
            stages=_turn_stages(reading, due, ttft, e2el, 1000 * (end - last)) if kind == "turn" else {},
            calls=dict(reading.calls),
        )
        return sample, result

    def _reply(self, text: str) -> Generator[str, None, Reply]:
        agent = self.agents.agent(self.user)
        agent.writer.refresh()
        with self.stopwatch.stage("store"):  # only what takes longer than the search that runs meanwhile
            hear = partial(agent.hear, text, self.now, self.session)
            session, prepared = hear_and_prepare(hear, partial(self._prepare, agent))
        adjust = partial(replace, max_tokens=self.max_tokens)
        return agent.reply(session.id, dialogue=session, adjust=adjust, prepared=prepared)

    def _prepare(self, agent: Conversation, dialogue: Session) -> PreparedReply:
        with self.stopwatch.stage("prompt"):
            return agent.responder.prepare(dialogue)


class JobRunner(Protocol):
    """What remembers closed sessions, such as a Runtime. A job is a record of the store with its user and session."""

    def waiting_jobs(self) -> Sequence[Any]:
        """Jobs to be done."""
        ...

    def remember(self, job: Any, /) -> bool:  # noqa: ANN401  # the store's record, which is only passed on
        """Whether it was done."""
        ...


class TimedJobs:
    """A JobRunner around another one: each job becomes a sample. `start` is the time the measurement began."""

    def __init__(
        self, runner: JobRunner, stopwatch: Stopwatch, point: str, start: float, write: Callable[[Sample], None]
    ) -> None:
        self._runner = runner
        self._stopwatch = stopwatch
        self._point = point
        self._start = start
        self._write = write
        self._changed = threading.Condition()
        self._pending = 0
        self._next_session: Callable[[str], bool] = lambda _user: False

    def waiting_jobs(self) -> Sequence[Any]:
        """Those of the runner."""
        return self._runner.waiting_jobs()

    def remember(self, job: Any, /) -> bool:  # noqa: ANN401  # the store's record, which is only passed on
        """Run and time a job. A failed job counts as finished: no measurement waits for its next attempt."""
        with self._stopwatch.measure() as reading:
            succeeded = self._runner.remember(job)
            elapsed = self._stopwatch.now() - reading.start
        sent = reading.start - self._start
        self._write(end_sample(self._point, job.user, job.session, sent, reading, elapsed, succeeded=succeeded))
        has_next = self._next_session(job.user)
        with self._changed:
            self._pending = max(self._pending + int(has_next) - 1, 0)  # a failed job may come a second time
            self._changed.notify_all()
        return succeeded

    def expect(self, sessions: int) -> None:
        """Announce sessions that are about to be closed."""
        with self._changed:
            self._pending += sessions

    def wait(self) -> None:
        """Wait until all announced sessions are remembered."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending <= 0)

    def set_supply(self, next_session: Callable[[str], bool] | None) -> None:
        """After each job `next_session` may close another session of its user and return True; None stops that."""
        self._next_session = next_session or (lambda _user: False)


def end_sample(
    point: str, user: str, session: str, sent: float, reading: Reading, seconds: float, *, succeeded: bool
) -> Sample:
    """The sample of a session's end that took `seconds` in all."""
    usage = reduce(PromptUsage.plus, reading.calls.values(), PromptUsage())
    elapsed = 1000 * seconds
    other = max(elapsed - sum(reading.stages.values()), 0.0)
    return Sample(
        point=point,
        kind="end",
        user=user,
        session=session,
        turn=0,
        sent=round(sent, 4),
        ttft_ms=None,
        e2el_ms=round(elapsed, 4),
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
        stages={name: round(ms, 4) for name, ms in {**reading.stages, "other": other}.items()},
        calls=dict(reading.calls),
        error=None if succeeded else "the session was not remembered; see the log",
    )


def _turn_stages(reading: Reading, due: float, ttft: float, e2el: float, after_reply: float) -> dict[str, float]:
    """In order: until the first token, decoding, after the reply. Time that no stage covers counts as `prompt`."""
    stages = reading.stages
    late = 1000 * (reading.start - due)
    before = {"queue": late} if late > 0 else {}
    before |= {name: ms for name, ms in stages.items() if not name.startswith(AFTER) and name not in _REPLY_STAGES}
    first_token = stages.get("first_token", 0.0)
    uncovered = ttft - first_token - sum(before.values())
    prompt = before.pop("prompt", 0.0) + max(uncovered, 0.0)
    after = {name: ms for name, ms in stages.items() if name.startswith(AFTER)}
    other = max(after_reply - sum(after.values()), 0.0)
    reply = {"prompt": prompt, "first_token": first_token, "decode": e2el - ttft}
    return {name: round(ms, 4) for name, ms in {**before, **reply, **after, f"{AFTER}other": other}.items()}


def _timed_pieces(pieces: Generator[str, None, Result], now: Callable[[], float]) -> tuple[list[float], Result]:
    """When each piece came, and what the generator returned."""
    times: list[float] = []
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            return times, end.value
        if piece:
            times.append(now())
