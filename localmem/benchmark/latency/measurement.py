"""One measurement: rounds of user turns, each followed by the same prompts to the bare backbone, and session ends.

The rounds alternate (turns, bare, turns, bare ...), so that a machine which slows down slows both. In a round each user
holds one session. Everything a measurement runs in comes as an Environment.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count, cycle
from secrets import token_hex
from threading import Event

from localmem.benchmark.latency import client
from localmem.benchmark.latency.client import Agents, SimulatedUser, run_tasks
from localmem.benchmark.latency.result import (
    CacheHit,
    Kind,
    Measurement,
    MemoryPeak,
    RequestStats,
    Sample,
    cache_hit,
    overhead,
    request_stats,
)
from localmem.benchmark.latency.stopwatch import SaltedLLM, Stopwatch
from localmem.benchmark.recipes import LatencyRecipe, MeasurementSpec
from localmem.llm.base import LLM
from localmem.reporting.provenance import MachineMonitor, MachineUsage, marks, observe
from localmem.types import Message, Role

MIN_REQUESTS = 100  # fewer are marked
_LATE_SHARE = 0.05  # of the turns may wait for a free user before the measurement is marked
_BACKGROUND_TURNS = 4  # of a session that is remembered in the background
_BACKGROUND_THREADS = 2  # that remember sessions, as in a server

Write = Callable[[Sample], None]
Counters = Callable[[], "tuple[int, int] | None"]


@dataclass(frozen=True, slots=True)
class Environment:
    """What a measurement runs in.

    `agents` has those of the background writers too. `bare` is the backbone without memory; `first_token_ms` is the
    exact time of a scripted one. `counters` are the server's prefix-cache counters: tokens requested, tokens hit.
    `settle` waits for work that the first turns started in the background.
    """

    agents: Agents
    bare: LLM
    stopwatch: Stopwatch
    units: int
    counters: Counters
    first_token_ms: float | None
    reports_cached: bool
    settle: Callable[[], None]


def round_count(recipe: LatencyRecipe, spec: MeasurementSpec) -> int:
    """Rounds for the wanted number of requests. With a warm cache the first turn of a session does not count."""
    return math.ceil(recipe.requests / (spec.users * (recipe.turns - (spec.cache == "warm"))))


def request_count(recipe: LatencyRecipe, spec: MeasurementSpec) -> int:
    """All requests that are sent, warm-up and bare ones included, session ends excluded; for a progress bar."""
    turns = spec.users * (recipe.warm_up + round_count(recipe, spec) * recipe.turns)
    return turns * (1 + (recipe.bare and not spec.during_ends))


def measure(recipe: LatencyRecipe, spec: MeasurementSpec, environment: Environment, write: Write) -> Measurement:
    """Run one measurement; `write` receives every sample as soon as its request is over."""
    run = _Run(recipe, spec, environment, write)
    before = observe()
    with MachineMonitor() as monitor:
        run.run()
    return run.measurement(before, monitor.usage, observe())


class _Run:
    def __init__(self, recipe: LatencyRecipe, spec: MeasurementSpec, environment: Environment, write: Write) -> None:
        self._recipe = recipe
        self._spec = spec
        self._environment = environment
        self._write = write
        self._samples: list[Sample] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)  # of the rounds, by kind of request
        self._start = environment.stopwatch.now()
        self._users = [self._new_user(user) for user in user_names(spec)]
        self._writers = [self._new_user(user) for user in writer_names(spec)]
        self._cache_counters: list[int] = []
        self._ended = 0
        self._salt, self._salts = token_hex(8), count()
        self._bare = SaltedLLM(environment.bare, self._bare_salt)
        self._warming_up = True

    def run(self) -> None:
        self._round("warm", self._recipe.warm_up)
        self._environment.settle()
        self._warming_up = False
        self._seconds.clear()
        self._read_counters()
        for number in range(round_count(self._recipe, self._spec)):
            self._round(f"round{number}", self._recipe.turns)
        self._read_counters()

    def measurement(self, before: MachineUsage, during: MachineUsage, after: MachineUsage) -> Measurement:
        spec = self._spec
        turns = self._of_kind("turn")
        turn_stats, bare_stats = self._stats("turn"), self._stats("bare") if self._of_kind("bare") else None
        answered = [sample for sample in turns if sample.error is None]
        first_token_ms = self._environment.first_token_ms
        return Measurement(
            id=spec.id,
            system=spec.system,
            load=spec.load,
            history=spec.history,
            units=self._environment.units,
            cache=spec.cache,
            requests=len(turns),
            warm_up=sum(sample.warm_up and sample.kind == "turn" for sample in self._samples),
            turns=turn_stats,
            during_ends=spec.during_ends,
            marks=(*self._marks(turns), *marks(before, during, after)),
            ends=self._stats("end") if self._of_kind("end") else None,
            bare=bare_stats,
            cache_hit=self._cache_hit(),
            memory=MemoryPeak(during.host_peak_mb, during.device_peak_mb),
            energy_j=during.energy_j,
            overhead=overhead(answered, self._of_kind("bare"), first_token_ms) if answered else None,
            state={"before": asdict(before), "while": asdict(during), "after": asdict(after)},
        )

    def _round(self, name: str, turns: int) -> None:
        if not turns:
            return
        for user in self._users:
            user.open_session(name)
        if self._spec.during_ends and not self._warming_up:
            self._turns_during_ends(name, turns)
            return
        self._send_turns(turns, name)
        if self._recipe.bare and not self._spec.during_ends:
            tasks = [[partial(self._send_bare, user, at) for at in range(len(user.answered))] for user in self._users]
            self._run_tasks("bare", tasks, name)
        self._end_sessions()

    def _send_turns(self, turns: int, name: str) -> None:
        tasks = [[partial(self._send_turn, user, number) for number in range(1, turns + 1)] for user in self._users]
        self._run_tasks("turn", tasks, name)

    def _run_tasks(self, kind: Kind, tasks: Sequence[Sequence[Callable[[float | None], None]]], name: str) -> None:
        now = self._environment.stopwatch.now
        self._seconds[kind] += run_tasks(self._spec.load, tasks, now, f"{self._recipe.seed}/{name}")

    def _send_turn(self, user: SimulatedUser, number: int, due: float | None) -> None:
        fills_cache = number == 1 and self._spec.cache == "warm"
        self._record(user.send_turn(due, warm_up=self._warming_up or fills_cache))

    def _send_bare(self, user: SimulatedUser, index: int, due: float | None) -> None:
        if sample := user.send_bare(self._bare, user.answered[index], due):
            self._record(sample)

    def _end_sessions(self) -> None:
        """Close and remember the first users' sessions, while no user talks."""
        users = [] if self._warming_up else self._users[: self._recipe.ends - self._ended]
        self._ended += len(users)
        start = self._environment.stopwatch.now()
        with ThreadPoolExecutor(_BACKGROUND_THREADS) as pool:
            for sample in pool.map(SimulatedUser.end_session, users):
                self._record(sample)
        self._seconds["end"] += self._environment.stopwatch.now() - start

    def _turns_during_ends(self, name: str, turns: int) -> None:
        stop = Event()
        start = self._environment.stopwatch.now()
        with ThreadPoolExecutor(_BACKGROUND_THREADS) as pool:
            lanes = (self._writers[lane::_BACKGROUND_THREADS] for lane in range(_BACKGROUND_THREADS))
            futures = [pool.submit(self._remember_until, stop, lane, name) for lane in lanes]
            try:
                self._send_turns(turns, name)
            finally:
                stop.set()
            for future in futures:
                future.result()
        self._seconds["end"] += self._environment.stopwatch.now() - start

    def _remember_until(self, stop: Event, writers: Sequence[SimulatedUser], name: str) -> None:
        for number, writer in enumerate(cycle(writers)):
            if stop.is_set():
                return
            writer.open_session(f"{name}.{number}")
            roles: tuple[Role, Role] = ("user", "assistant")
            messages = [Message(roles[at % 2], next(writer.texts)) for at in range(_BACKGROUND_TURNS)]
            self._environment.agents.agent(writer.user).log_turns(messages, writer.now, writer.session)
            self._record(writer.end_session())

    def _record(self, sample: Sample) -> None:
        self._write(sample)
        self._samples.append(sample)

    def _of_kind(self, kind: Kind) -> list[Sample]:
        return [sample for sample in self._samples if sample.kind == kind and not sample.warm_up]

    def _stats(self, kind: Kind) -> RequestStats:
        goodput: Mapping[str, float] = {str(name): limit for name, limit in self._recipe.goodput.items()}
        return request_stats(self._of_kind(kind), self._seconds[kind], goodput)

    def _cache_hit(self) -> CacheHit:
        """Of every turn after the warm-up round, first turns of sessions included: shares are reported by turn."""
        turns = [sample for sample in self._samples if sample.kind == "turn" and not sample.session.endswith(".warm")]
        server = None
        if len(self._cache_counters) == 4:
            requested = self._cache_counters[2] - self._cache_counters[0]
            hits = self._cache_counters[3] - self._cache_counters[1]
            server = round(hits / requested, 4) if requested else None
        return cache_hit(turns, reported=self._environment.reports_cached, server=server)

    def _read_counters(self) -> None:
        self._cache_counters += self._environment.counters() or ()

    def _marks(self, turns: Sequence[Sample]) -> list[str]:
        marks = [f"{len(turns)} requests, fewer than {MIN_REQUESTS}"] if len(turns) < MIN_REQUESTS else []
        if failed := sum(sample.error is not None for sample in turns):
            marks.append(f"{failed} of {len(turns)} requests failed")
        late = sum(sample.stages.get("queue", 0.0) > 1 for sample in turns)
        if late > _LATE_SHARE * len(turns):
            marks.append(f"{late} of {len(turns)} turns waited for a free user; raise users")
        return marks

    def _bare_salt(self) -> str:
        """The salt of a bare request: its prompt is cached apart from those of turns, or not at all."""
        return self._salt if self._spec.cache == "warm" else f"{self._salt}-{next(self._salts)}"

    def _new_user(self, name: str) -> SimulatedUser:
        recipe, spec = self._recipe, self._spec
        return SimulatedUser(
            point=spec.id,
            user=name,
            agents=self._environment.agents,
            stopwatch=self._environment.stopwatch,
            texts=client.user_texts(spec.history, recipe.exchanges, recipe.seed, name),
            now=client.today(spec.history),
            start=self._start,
            max_tokens=recipe.answer,
        )


def user_names(spec: MeasurementSpec) -> list[str]:
    """The users who talk."""
    return [f"user{number:03d}" for number in range(spec.users)]


def writer_names(spec: MeasurementSpec) -> list[str]:
    """The users whose sessions are remembered in the background."""
    return [f"writer{number:03d}" for number in range(spec.load.concurrency or spec.users)] if spec.during_ends else []
