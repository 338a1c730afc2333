"""What the evaluation's runner costs: a run over a scripted LLM of known pace, beside the same work without it.

The episodes are made up and alike, so that the least that their calls can take is plain arithmetic. Without the runner
the same agents read and answer the same in as many threads: no meter, nothing timed, nothing written down.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from localmem.bank import Bank
from localmem.chat.agent import ChatAgent
from localmem.evaluation.answers import Answer, Work, answers_in, lines_in
from localmem.evaluation.episodes import Data, Episode, Probe
from localmem.evaluation.runner import Seat, run
from localmem.journal import NoJournal
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.rsum import RecursiveSummary
from localmem.types import Session, Turn

SESSIONS, PROBES = 5, 10  # of an episode; each is one call
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Pace:
    """Medians over rounds: `seconds` of a run, `bare` without the runner, `least` for its calls in so many threads."""

    threads: int
    calls: int
    seconds: float
    bare: float
    least: float

    @property
    def overhead(self) -> float:
        """The share of a run that the runner and its meter took."""
        return 1 - self.bare / self.seconds

    @property
    def not_waiting(self) -> float:
        """The share of a run that was not spent waiting for the LLM: the system's and the prompts' work, too."""
        return 1 - self.least / self.seconds


def pace(threads: int, episodes: int, seconds_a_call: float, rounds: int = 1) -> Pace:
    """`episodes` for each of the threads, with the runner and without in turn, `rounds` times."""
    llm = ScriptedLLM(lambda _: "It was on a Sunday.", first_token=seconds_a_call)
    data = Data("made", "0" * 64, tuple(_episode(number) for number in range(threads * episodes)))
    ran, bare = zip(*((_ran(data, llm, threads), _bare(data, llm, threads)) for _ in range(rounds)), strict=True)
    calls = len(data.episodes) * (SESSIONS + PROBES)
    return Pace(threads, calls, median(ran), median(bare), calls * seconds_a_call / threads)


def _ran(data: Data, llm: LLM, threads: int) -> float:
    """Seconds of the runner's run."""
    with TemporaryDirectory(prefix="localmem-bench-") as folder:
        path = Path(folder) / "answers.jsonl"
        with answers_in(path) as answers:
            seconds = _seconds(lambda: run(["rsum"], [data], _agent, llm, answers, threads=threads))
        _check(path, len(data.episodes))
    return seconds


def _bare(data: Data, llm: LLM, threads: int) -> float:
    """Seconds of the same work without the runner."""

    def work(episode: Episode) -> None:
        agent = _agent(Seat(Work("rsum", data.name, episode.id), "Ann", "Ben", llm, Bank(), NoJournal()))
        agent.read(episode.sessions)
        for probe in episode.probes:
            asked = Turn(f"{probe.id}.0", "user", "Ann", probe.question, _START + timedelta(days=SESSIONS))
            agent.answer(Session(probe.id, (asked,)))

    with ThreadPoolExecutor(threads) as pool:
        return _seconds(lambda: list(pool.map(work, data.episodes)))


def _seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began


def _check(path: Path, episodes: int) -> None:
    """A run that left something out is no measurement."""
    answers = [line for line in lines_in(path) if isinstance(line, Answer)]
    if len(answers) != episodes * PROBES or any(answer.error for answer in answers):
        raise RuntimeError(f"{len(answers)} of {episodes * PROBES} probes were answered; this is a defect")


def _agent(seat: Seat) -> ChatAgent:
    memory = RecursiveSummary(llm=seat.llm, bank=seat.bank)
    return ChatAgent(memory=memory, llm=seat.llm, journal=seat.journal, user=seat.user, assistant=seat.assistant)


def _episode(number: int) -> Episode:
    sessions = tuple(_session(f"{number}.{day}", _START + timedelta(days=day)) for day in range(SESSIONS))
    probes = tuple(Probe(f"{number}/{n}", "When was it?", "Sunday", "time", None, (), ()) for n in range(PROBES))
    return Episode(str(number), "report", sessions, probes)


def _session(name: str, time: datetime) -> Session:
    said = ("We met on a Sunday, by the river, and walked home together.", "That sounds like a good day.")
    roles = (("user", "Ann"), ("assistant", "Ben"))
    turns = (
        Turn(f"{name}.{n}", role, speaker, text, time)  # type: ignore[arg-type]  # the two roles
        for n, ((role, speaker), text) in enumerate(zip(roles * 6, said * 6, strict=True))
    )
    return Session(name, tuple(turns))
