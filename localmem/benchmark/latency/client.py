"""Simulated users of an agent and of the bare backbone, and what they said before a measurement.

Each turn and each session end becomes a raw sample. Requests are sent in a closed loop (a fixed number at any time) or
an open loop (a fixed rate, whatever happens). Past sessions are generated from a seed, and no backbone is needed: one
memory reads them over a scripted LLM whose answers fit each prompt's format, every system with its own code, and the
resulting changes are committed to every user's bank through the journal. So all users have the same bank; the words of
past sessions are not in their logs, which nothing reads during a session.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial, reduce
from itertools import pairwise
from random import Random
from time import sleep
from typing import Any, Protocol, TypeVar
from zlib import crc32

from localmem.benchmark.corpus import Statement, generate_statements
from localmem.benchmark.latency.arrivals import arrival_gaps
from localmem.benchmark.latency.result import Kind, Sample
from localmem.benchmark.latency.stopwatch import AFTER, Reading, Stopwatch
from localmem.benchmark.recipes import Load
from localmem.chat.conversation import Conversation, log_and_prepare
from localmem.chat.responder import PreparedReply
from localmem.errors import LocalmemError
from localmem.journal import Journal, NoJournal
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.llm.wrappers import PromptUsage, in_background
from localmem.types import Change, Choice, Completion, JsonSchema, Prompt, Reply, Role, Session, Turn

Track = Callable[[Sequence[Session]], Iterable[Session]]

FIRST_DAY = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
_STATEMENTS = 2_000  # that scripted answers are made of
_BATCH = 5_000  # changes in one transaction
_LINES = 5  # of a free-text answer
_MAX_ITEMS = 3  # of a list in an answer


def generate_sessions(count: int, exchanges: int, seed: int) -> list[Session]:
    """One session a day; the last is on the day before `today(count)`."""
    pairs = generate_statements(count * exchanges, seed)
    return [
        _session(number, pairs[number * exchanges : (number + 1) * exchanges], f"past{number:05d}")
        for number in range(count)
    ]


def today(history: int) -> datetime:
    """The morning after that many sessions."""
    return FIRST_DAY + timedelta(days=history)


def user_texts(history: int, exchanges: int, seed: int, user: str) -> Iterator[str]:
    """A user's turns: each asks about something said before, if there is anything, and says something new."""
    random = Random(f"{seed}/{user}")  # noqa: S311  # words, not a secret
    past = generate_statements(max(min(history * exchanges, _STATEMENTS), 1), seed)
    statements = generate_statements(_STATEMENTS, seed + 1)
    number = 0
    while True:
        number += 1
        first, second = random.choice(statements)[0], random.choice(statements)[0]
        question = random.choice(past if history else statements)[1]
        yield f"{question} By the way, number {number}: {first} {second}"


def remember(
    new_agent: Callable[[Journal], Conversation], sessions: Sequence[Session], track: Track = iter
) -> list[Change]:
    """The changes that a memory makes while it reads the sessions."""
    journal = _RecordingJournal()
    new_agent(journal).writer.read(track(sessions))
    return journal.changes


def commit_history(journal: Journal, changes: Sequence[Change]) -> None:
    """Apply the changes to a user's bank."""
    for start in range(0, len(changes), _BATCH):
        journal.commit(f"past/{start}", changes[start : start + _BATCH])


class _RecordingJournal(NoJournal):
    def __init__(self) -> None:
        self.changes: list[Change] = []

    def commit(self, cause: str, changes: Sequence[Change], *, derived: bool = False) -> bool:
        self.changes += changes
        return True

    def finish(self, session_id: str, changes: Sequence[Change]) -> bool:
        self.changes += changes
        return True


def _session(number: int, pairs: Sequence[Statement], name: str) -> Session:
    start = FIRST_DAY + timedelta(days=number)
    speakers: tuple[tuple[Role, str], ...] = (("user", "User"), ("assistant", "Assistant"))
    texts = enumerate(text for pair in pairs for text in pair)
    return Session(
        name,
        tuple(Turn(f"{name}.{at}", *speakers[at % 2], text, start + timedelta(minutes=at)) for at, text in texts),
    )


def scripted_llm(reply_words: int, *, first_token: float = 0.0, per_token: float = 0.0) -> ScriptedLLM:
    """A backbone with fixed times in seconds that answers every prompt of every system in its format."""
    return ScriptedLLM(
        lambda prompt: scripted_answer(prompt, reply_words),
        name="scripted",
        context_length=32768,
        first_token=first_token,
        per_token=per_token,
    )


def scripted_answer(prompt: Prompt, reply_words: int) -> str:
    """The same for the same prompt: a reply of `reply_words`, a value of the prompt's format, or some statements."""
    random = Random(crc32(prompt.messages[-1].content.encode()))  # noqa: S311  # words, not a secret
    match prompt.format:
        case Choice(options=options):
            return random.choice(options)
        case JsonSchema(schema=schema):
            return json.dumps(_schema_value(schema, random), ensure_ascii=False)
    if "/respond" not in prompt.name:
        return "\n".join(random.choices(_statement_texts(), k=_LINES))
    words = " ".join(random.choices(_statement_texts(), k=1 + reply_words // 5)).split()
    return " ".join(words[:reply_words])


def _schema_value(schema: Mapping[str, Any], random: Random) -> object:
    if "enum" in schema:
        return random.choice(list(schema["enum"]))
    match schema["type"]:
        case "object":
            return {name: _schema_value(field, random) for name, field in schema["properties"].items()}
        case "array":
            count = max(min(schema.get("maxItems", _MAX_ITEMS), _MAX_ITEMS), schema.get("minItems", 0))
            return [_schema_value(schema["items"], random) for _ in range(count)]
        case "integer":
            return random.randint(schema.get("minimum", 0), schema.get("maximum", 9))
        case "boolean":
            return random.random() < 0.5
    return random.choice(_statement_texts())[: schema.get("maxLength")]


@cache
def _statement_texts() -> tuple[str, ...]:
    return tuple(statement for statement, _ in generate_statements(_STATEMENTS, 7))


Task = Callable[[float | None], None]  # receives its due time, or None when it is due as it starts


def run_tasks(load: Load, users: Sequence[Sequence[Task]], now: Callable[[], float], seed: str) -> float:
    """Run all tasks of all users; returns the seconds that took. Raises whatever a task raises."""
    start = now()
    if load.kind == "open":
        _run_open(arrival_gaps(load, seed), users, now)
    else:
        _run_closed(load.concurrency or 1, users)
    return now() - start


def _run_closed(concurrency: int, users: Sequence[Sequence[Task]]) -> None:
    """Each thread serves its users in turn, so a user who got a reply pauses while the thread's others talk."""
    lanes = [users[lane::concurrency] for lane in range(min(concurrency, len(users)))]
    gate = threading.Barrier(len(lanes))

    def run(lane: Sequence[Sequence[Task]]) -> None:
        gate.wait()
        for task in _interleave(lane):
            task(None)

    with ThreadPoolExecutor(len(lanes), thread_name_prefix="bench-user") as pool:
        for future in [pool.submit(run, lane) for lane in lanes]:
            future.result()


def _interleave(lane: Sequence[Sequence[Task]]) -> Iterator[Task]:
    for step in range(max(map(len, lane))):
        yield from (tasks[step] for tasks in lane if step < len(tasks))


def _run_open(gaps: Iterator[float], users: Sequence[Sequence[Task]], now: Callable[[], float]) -> None:
    """A user still waiting for a reply is served when it is there."""
    idle = _IdleUsers(users)
    due = now()
    with ThreadPoolExecutor(len(users), thread_name_prefix="bench-user") as pool:
        futures = []
        for _ in range(sum(map(len, users))):
            due += next(gaps)
            sleep(max(due - now(), 0.0))
            futures.append(pool.submit(idle.send, due))
        for future in futures:
            future.result()


class _IdleUsers:
    def __init__(self, users: Sequence[Sequence[Task]]) -> None:
        self._remaining = [deque(tasks) for tasks in users]
        self._idle = deque(index for index, tasks in enumerate(users) if tasks)
        self._changed = threading.Condition()

    def send(self, due: float) -> None:
        """Runs the next task of the user who has been idle longest."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._idle))
            user = self._idle.popleft()
            task = self._remaining[user].popleft()
        try:
            task(due)
        finally:
            with self._changed:
                if self._remaining[user]:
                    self._idle.append(user)
                    self._changed.notify()


Result = TypeVar("Result", bound=Completion | Reply)

_BETWEEN_TURNS = timedelta(minutes=1)
_REPLY_STAGES = ("first_token", "decode")


class Agents(Protocol):
    """Where users' agents come from and what remembers their sessions, such as a Runtime."""

    def agent(self, user: str) -> Conversation:
        """The user's agent, with the bank as it is in the store."""

    def waiting_jobs(self, user: str, /) -> Sequence[Any]:
        """Records of the user's closed sessions that are not remembered yet."""

    def remember(self, job: Any, /) -> bool:  # noqa: ANN401  # the store's record, which is only passed on
        """Remember a session; False if that failed."""


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

    def end_session(self) -> Sample:
        """Close the session and remember it, as a background thread of a server does."""
        self.agents.agent(self.user).close(self.session)
        with in_background(), self.stopwatch.measure() as reading:
            jobs = self.agents.waiting_jobs(self.user)
            succeeded = all(map(self.agents.remember, jobs))
            elapsed = 1000 * (self.stopwatch.now() - reading.start)
        usage = reduce(PromptUsage.plus, reading.calls.values(), PromptUsage())
        stages = {**reading.stages, "other": max(elapsed - sum(reading.stages.values()), 0.0)}
        sent = round(reading.start - self.start, 4)
        sample = Sample(self.point, "end", self.user, self.session, 0, sent, None, round(elapsed, 4))
        return replace(
            sample,
            input_tokens=usage.input_tokens,
            cached_tokens=usage.cached_tokens,
            output_tokens=usage.output_tokens,
            stages={name: round(ms, 4) for name, ms in stages.items()},
            calls=dict(reading.calls),
            error=None if succeeded else "the session was not remembered; see the log",
        )

    def _send(
        self,
        kind: Kind,
        turn: int,
        due: float | None,
        warm_up: bool,
        stream: Callable[[], Generator[str, None, Result]],
    ) -> tuple[Sample, Result | None]:
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
            log_turns = partial(agent.log_turns, text, self.now, self.session)
            session, prepared = log_and_prepare(log_turns, partial(self._prepare, agent))
        adjust = partial(replace, max_tokens=self.max_tokens, open_ended=False)
        return agent.reply(session.id, dialogue=session, adjust=adjust, prepared=prepared)

    def _prepare(self, agent: Conversation, dialogue: Session) -> PreparedReply:
        with self.stopwatch.stage("prompt"):
            return agent.responder.prepare(dialogue)


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
    times: list[float] = []
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            return times, end.value
        if piece:
            times.append(now())
