"""One point: rounds of talk, each followed by the same prompts sent to the bare backbone, and by sessions' ends.

The rounds alternate (turns, bare, turns, bare ...), so that a machine which grows slower in time is slower for both.
In a round each user holds one session. Knows what a point runs in as a World, and builds nothing of it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from secrets import token_hex

from localmem.benchmark.latency import figures, machine_state, synthetic_history
from localmem.benchmark.latency.client import Home, Talk
from localmem.benchmark.latency.ends import WatchedJobs
from localmem.benchmark.latency.load_generator import drive
from localmem.benchmark.latency.plan import Plan, Spec
from localmem.benchmark.latency.result import CacheHit, Kind, MemoryPeak, Part, Point, Sample
from localmem.benchmark.latency.stopwatch import Clock, Salted
from localmem.llm.base import LLM
from localmem.types import Message

FEWEST = 100  # requests that a point must have to be trusted
_LATE = 0.05  # of the turns may have waited for a free user
_PAST_TURNS = 2  # of a session that is remembered beside others' talk: so many exchanges

Write = Callable[[Sample], None]
Counters = Callable[[], "tuple[int, int] | None"]


@dataclass(frozen=True, slots=True)
class World:
    """What a point runs in.

    `home` holds the agents, of `writers` too, whose sessions are remembered beside the users' talk. `bare` is the
    backbone with nothing around it, `first_token_ms` the time that a scripted one takes for it. `counters` are those of
    the server's prefix cache: tokens asked for, and found. `remembering` has sessions remembered while it lasts.
    `settle` waits for what the users' first turns set going behind them.
    """

    home: Home
    bare: LLM
    clock: Clock
    units: int
    counters: Counters
    first_token_ms: float | None
    tells_cached: bool
    remembering: Callable[[WatchedJobs], AbstractContextManager[Callable[[], None]]]
    settle: Callable[[], None]
    jobs: Callable[[str, float, Write], WatchedJobs]


@dataclass(slots=True)
class _Kept:
    """The samples of a point, and how long its blocks of each kind took."""

    write: Write
    samples: list[Sample] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def keep(self, sample: Sample) -> None:
        self.write(sample)
        self.samples.append(sample)

    def took(self, kind: Kind, seconds: float) -> None:
        self.seconds[kind] = self.seconds.get(kind, 0.0) + seconds

    def of(self, kind: Kind) -> list[Sample]:
        return [sample for sample in self.samples if sample.kind == kind and not sample.warm_up]


def rounds(plan: Plan, spec: Spec) -> int:
    """How many rounds give the wished number of requests. With a warm cache a session's first turn is not counted."""
    counted = plan.turns - (spec.cache == "warm")
    return math.ceil(plan.requests / (spec.users * counted))


def requests(plan: Plan, spec: Spec) -> int:
    """How many requests a point sends in all, warm-up and bare ones included, ends not: for a progress bar."""
    turns = spec.users * (plan.warm_up + rounds(plan, spec) * plan.turns)
    return turns * (1 + (plan.bare and not spec.during_ends))


def measure(plan: Plan, spec: Spec, world: World, write: Write) -> Point:
    """Runs the point; every request is given to `write` as soon as it is over."""
    run = _Run(plan, spec, world, write)
    before = machine_state.look()
    with machine_state.Watch() as watch:
        run.all()
    return run.point(before, watch.seen, machine_state.look())


class _Run:
    def __init__(self, plan: Plan, spec: Spec, world: World, write: Write) -> None:
        self._plan = plan
        self._spec = spec
        self._world = world
        self._kept = _Kept(write)
        self._began = world.clock.now()
        self._jobs = world.jobs(spec.id, self._began, self._kept.keep)
        self._talks = [self._talk(user) for user in users(spec)]
        self._writers = [self._talk(user) for user in writers(spec)]
        self._served: list[float] = []
        self._ended = 0
        self._token, self._salts = token_hex(8), count()
        self._bare = Salted(world.bare, self._salt)
        self._warm = True

    def all(self) -> None:
        """Warm up, then the rounds."""
        with self._world.remembering(self._jobs) as nudge:
            self._round("warm", self._plan.warm_up, nudge)
            self._world.settle()
            self._warm = False
            self._kept.seconds.clear()
            self._count()
            for number in range(rounds(self._plan, self._spec)):
                self._round(f"round{number}", self._plan.turns, nudge)
            self._count()

    def point(self, before: machine_state.State, seen: machine_state.Seen, after: machine_state.State) -> Point:
        """What was measured."""
        spec, kept = self._spec, self._kept
        turns, ends, bare = kept.of("turn"), kept.of("end"), kept.of("bare")
        of_turns = self._part("turn", turns)
        of_bare = self._part("bare", bare) if bare else None
        whole = [sample for sample in turns if sample.error is None]
        return Point(
            id=spec.id,
            system=spec.system,
            load=spec.load,
            history=spec.history,
            units=self._world.units,
            cache=spec.cache,
            requests=len(turns),
            warm_up=sum(sample.warm_up and sample.kind == "turn" for sample in kept.samples),
            turns=of_turns,
            during_ends=spec.during_ends,
            marks=(*self._marks(turns), *machine_state.marks(before, seen, after)),
            ends=self._part("end", ends) if ends else None,
            bare=of_bare,
            cache_hit=self._hit(),
            memory=MemoryPeak(seen.host_peak_mb, seen.device_peak_mb),
            energy_j=seen.energy_j,
            overhead=figures.overhead(of_turns, of_bare, whole, self._world.first_token_ms) if whole else None,
            state={"before": asdict(before), "while": asdict(seen), "after": asdict(after)},
        )

    # -- a round ---------------------------------------------------------------------------------------------------

    def _round(self, name: str, turns: int, nudge: Callable[[], None]) -> None:
        if not turns:
            return
        for talk in self._talks:
            talk.open(name)
        if self._spec.during_ends and not self._warm:
            self._with_ends(name, turns, nudge)
            return
        self._talk_all(turns, name)
        if self._plan.bare and not self._spec.during_ends:
            self._bare_all(name)
        self._end_some(nudge)

    def _talk_all(self, turns: int, name: str) -> None:
        tasks = [[partial(self._turn, talk, number) for number in range(1, turns + 1)] for talk in self._talks]
        self._kept.took("turn", self._drive(tasks, name))

    def _bare_all(self, name: str) -> None:
        tasks = [[partial(self._again, talk, at) for at in range(len(talk.asked))] for talk in self._talks]
        self._kept.took("bare", self._drive(tasks, name))

    def _drive(self, tasks: Sequence[Sequence[Callable[[float | None], None]]], name: str) -> float:
        return drive(self._spec.load, tasks, self._world.clock.now, f"{self._plan.seed}/{name}")

    def _turn(self, talk: Talk, number: int, due: float | None) -> None:
        first = number == 1 and self._spec.cache == "warm"
        self._kept.keep(talk.turn(due, warm_up=self._warm or first))

    def _again(self, talk: Talk, at: int, due: float | None) -> None:
        if sample := talk.bare(self._bare, talk.asked[at], due):
            self._kept.keep(sample)

    def _end_some(self, nudge: Callable[[], None]) -> None:
        """The first users' sessions are over; they are remembered while nobody talks."""
        over = [] if self._warm else self._talks[: self._plan.ends - self._ended]
        self._ended += len(over)
        began = self._world.clock.now()
        self._jobs.expect(len(over))
        for talk in over:
            talk.close()
        nudge()
        self._jobs.wait()
        self._kept.took("end", self._world.clock.now() - began)

    # -- ends beside talk --------------------------------------------------------------------------------------------

    def _with_ends(self, name: str, turns: int, nudge: Callable[[], None]) -> None:
        """While the users talk the writers' sessions are remembered, for each that is done another."""
        numbers = count()

        def feed(user: str) -> bool:
            writer = next((one for one in self._writers if one.user == user), None)
            if writer is None:
                return False
            self._hold(writer, f"{name}.{next(numbers)}")
            nudge()
            return True

        began = self._world.clock.now()
        self._jobs.keep_coming(feed)
        self._jobs.expect(sum(feed(writer.user) for writer in self._writers))
        self._talk_all(turns, name)
        self._jobs.keep_coming(None)
        self._jobs.wait()
        self._kept.took("end", self._world.clock.now() - began)

    def _hold(self, writer: Talk, name: str) -> None:
        """A session that is over and waits to be remembered, held without asking for replies."""
        writer.open(name)
        agent = self._world.home.agent(writer.user)
        said = [Message("assistant" if at % 2 else "user", next(writer.words)) for at in range(2 * _PAST_TURNS)]
        agent.hear_all(said, writer.now, writer.session)
        writer.close()

    # -- figures -----------------------------------------------------------------------------------------------------

    def _part(self, kind: Kind, samples: Sequence[Sample]) -> Part:
        return figures.part(samples, self._kept.seconds.get(kind, 0.0), _objective(self._plan))

    def _hit(self) -> CacheHit:
        """Of every turn after the warm-up round, the sessions' first included: their share is told by turn."""
        turns = [one for one in self._kept.samples if one.kind == "turn" and not one.session.endswith(".warm")]
        return figures.cache_hit(turns, told=self._world.tells_cached, server=self._server_hit())

    def _server_hit(self) -> float | None:
        if len(self._served) < 4:
            return None
        asked, found = self._served[2] - self._served[0], self._served[3] - self._served[1]
        return round(found / asked, 4) if asked else None

    def _count(self) -> None:
        self._served += self._world.counters() or ()

    def _marks(self, turns: Sequence[Sample]) -> list[str]:
        marks = [f"{len(turns)} requests, fewer than {FEWEST}"] if len(turns) < FEWEST else []
        if failed := sum(sample.error is not None for sample in turns):
            marks.append(f"{failed} of {len(turns)} requests failed")
        late = sum(sample.stages.get("queue", 0.0) > 1 for sample in turns)
        if late > _LATE * len(turns):
            marks.append(f"{late} of {len(turns)} turns waited for a free user: more users would have asked sooner")
        return marks

    def _salt(self) -> str:
        """Of the bare requests: their prompts are cached apart from those of the turns."""
        return self._token if self._spec.cache == "warm" else f"{self._token}-{next(self._salts)}"

    def _talk(self, user: str) -> Talk:
        plan, spec = self._plan, self._spec
        return Talk(
            point=spec.id,
            user=user,
            home=self._world.home,
            clock=self._world.clock,
            words=synthetic_history.words(spec.history, plan.exchanges, plan.seed, user),
            now=synthetic_history.today(spec.history),
            began=self._began,
            limit=plan.answer,
        )


def users(spec: Spec) -> list[str]:
    """Those who talk."""
    return [f"user{number:03d}" for number in range(spec.users)]


def writers(spec: Spec) -> list[str]:
    """Those whose sessions are remembered while others talk."""
    return [f"writer{number:03d}" for number in range(spec.load.concurrency or spec.users)] if spec.during_ends else []


def _objective(plan: Plan) -> Mapping[str, float]:
    return {str(name): value for name, value in plan.goodput.items()}
