"""What the evaluation's runner costs: a run over a scripted LLM of known pace, against the least it could take.

The episodes are made up and alike, so that with as many episodes a thread as another's the least is plain arithmetic.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from localmem.agent import ChatAgent
from localmem.evaluation.answers import Answer, answers_in, lines_in
from localmem.evaluation.episodes import Data, Episode, Probe
from localmem.evaluation.runner import Seat, run
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.rsum import RecursiveSummary
from localmem.types import Session, Turn

SESSIONS, PROBES = 5, 10  # of an episode; each is one call
_START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Pace:
    """One run: `seconds` it took, and the `least` that its calls take in so many threads."""

    threads: int
    calls: int
    seconds: float
    least: float

    @property
    def overhead(self) -> float:
        """The share of the run that was not spent waiting for the LLM."""
        return 1 - self.least / self.seconds


def pace(threads: int, episodes: int, seconds_a_call: float) -> Pace:
    """Runs `episodes` for each of the threads."""
    llm = ScriptedLLM(lambda _: "It was on a Sunday.", first_token=seconds_a_call)
    data = Data("made", "0" * 64, tuple(_episode(number) for number in range(threads * episodes)))
    with TemporaryDirectory(prefix="localmem-bench-") as folder:
        path = Path(folder) / "answers.jsonl"
        with answers_in(path) as answers:
            began = perf_counter()
            run(["rsum"], [data], _agent, llm, answers, threads=threads)
            seconds = perf_counter() - began
        _check(path, len(data.episodes))
    calls = len(data.episodes) * (SESSIONS + PROBES)
    return Pace(threads, calls, seconds, calls * seconds_a_call / threads)


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
