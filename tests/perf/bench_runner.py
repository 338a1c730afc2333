"""What the evaluation runner costs: a run over a scripted LLM beside the same work without it. Prints JSON.

Without the runner the same agents read and answer the same episodes in as many threads: no meter, no timing, no file.
"""

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.chat.responder import Speakers
from localmem.evaluation.answers import Answer, Work, open_answers, read_answers
from localmem.evaluation.episodes import Dataset, Episode, Probe
from localmem.evaluation.runner import AgentSpec, run_systems
from localmem.journal import NoJournal
from localmem.llm.base import LLM, drain
from localmem.llm.scripted import ScriptedLLM
from localmem.reporting.provenance import versions
from localmem.systems.rsum import RecursiveSummary
from localmem.types import Session, Turn

SESSIONS, PROBES = 5, 10  # per episode; each is one call
_START = datetime(2026, 1, 1, tzinfo=UTC)


def measure(threads: int, episodes: int, call_seconds: float, rounds: int = 1) -> dict[str, float]:
    """Median seconds of both ways over `rounds`; `overhead` is the runner's share of its run."""
    llm = ScriptedLLM(lambda _: "It was on a Sunday.", first_token=call_seconds)
    dataset = Dataset("synthetic", "0" * 64, tuple(_episode(number) for number in range(threads * episodes)))
    with_runner = median(_with_runner(dataset, llm, threads) for _ in range(rounds))
    without = median(_without_runner(dataset, llm, threads) for _ in range(rounds))
    calls = len(dataset.episodes) * (SESSIONS + PROBES)
    minimum = calls * call_seconds / threads
    return {
        "threads": threads,
        "calls": calls,
        "seconds": with_runner,
        "seconds_without_runner": without,
        "minimum_seconds": minimum,
        "overhead": 1 - without / with_runner,
        "calls_per_second": calls / with_runner,
    }


def _with_runner(dataset: Dataset, llm: LLM, threads: int) -> float:
    with TemporaryDirectory(prefix="localmem-bench-") as folder:
        path = Path(folder) / "answers.jsonl"
        with open_answers(path) as answers:
            seconds = _time(lambda: run_systems(["rsum"], [dataset], _agent, llm, answers, threads=threads))
        written = [line for line in read_answers(path) if isinstance(line, Answer)]
    if len(written) != len(dataset.episodes) * PROBES or any(answer.error for answer in written):
        raise RuntimeError(f"only {len(written)} probes were answered")
    return seconds


def _without_runner(dataset: Dataset, llm: LLM, threads: int) -> float:
    def work(episode: Episode) -> None:
        agent = _agent(
            AgentSpec(Work("rsum", dataset.name, episode.id), Speakers("Ann", "Ben"), llm, Bank(), NoJournal())
        )
        agent.writer.read(episode.sessions)
        for probe in episode.probes:
            turn = Turn(f"{probe.id}.0", "user", "Ann", probe.question, _START + timedelta(days=SESSIONS))
            dialogue = Session(probe.id, (turn,))
            drain(agent.responder.stream(dialogue, agent.responder.prepare(dialogue)))

    with ThreadPoolExecutor(threads) as pool:
        return _time(lambda: list(pool.map(work, dataset.episodes)))


def _time(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _agent(spec: AgentSpec) -> Conversation:
    memory = RecursiveSummary(llm=spec.llm, bank=spec.bank)
    return Conversation(memory=memory, llm=spec.llm, journal=spec.journal, speakers=spec.speakers)


def _episode(number: int) -> Episode:
    sessions = tuple(_session(f"{number}.{day}", _START + timedelta(days=day)) for day in range(SESSIONS))
    probes = tuple(Probe(f"{number}/{n}", "When was it?", "Sunday", "time", None, (), ()) for n in range(PROBES))
    return Episode(str(number), "report", sessions, probes)


def _session(name: str, time: datetime) -> Session:
    texts = ("We met on a Sunday, by the river, and walked home together.", "That sounds like a good day.")
    roles = (("user", "Ann"), ("assistant", "Ben"))
    turns = (
        Turn(f"{name}.{n}", role, speaker, text, time)  # type: ignore[arg-type]  # the two roles
        for n, ((role, speaker), text) in enumerate(zip(roles * 6, texts * 6, strict=True))
    )
    return Session(name, tuple(turns))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=2, help="per thread")
    parser.add_argument("--call-ms", type=float, default=50.0, help="time of one LLM call")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    seconds = options.call_ms / 1000
    rows = [
        measure(1, 2 * options.episodes, seconds),
        measure(options.threads, options.episodes, seconds, options.rounds),
    ]
    print(json.dumps({"runs": rows, "versions": versions()}, indent=2))
