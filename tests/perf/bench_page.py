"""How long the page's views take over a large memory, one after another in one process. Prints JSON.

The memory is synthetic: `--units` statements in sessions of twenty, one of two hundred of them replaced, found by words
alone (no encoder), so that a view's own work is what is timed.
"""

import argparse
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import numpy as np
from fastapi.testclient import TestClient

from localmem.config import load_settings
from localmem.llm.scripted import ScriptedLLM
from localmem.reporting.provenance import versions
from localmem.runtime import Runtime
from localmem.server.app import create_app
from localmem.types import AddLink, AddUnit, Change, Link, Turn, Unit

_PER_SESSION = 20
_START = datetime(2020, 1, 1, tzinfo=UTC)
_WORDS = ("river", "dog", "theatre", "kitchen", "sister", "garden", "train", "music", "summer", "coffee", "letter")
VIEWS = {
    "chat": "/",
    "list": "/memory",
    "list, page 50": "/memory?page=50",
    "search by words": "/memory?q=kitchen+summer+99",
    "filter by days": "/memory?since=2020-03-01&until=2020-03-05",
    "search by meaning": "/memory?q=kitchen+in+summer&by=meaning",
    "as it was on a day": "/memory?as_of=2020-02-01",
    "one memory": "/memory/s7.4@u0",
    "sessions": "/sessions",
    "one session": "/sessions/s7",
    "why": "/why?q=Where+is+my+kitchen%3F",
    "links": "/links",
    "notes": "/notes",
    "refused": "/refused",
}


def fill(runtime: Runtime, units: int, seed: int = 0) -> None:
    """A memory of so many units, in sessions that are over and remembered."""
    random, journal = Random(seed), runtime.store.journal("me", runtime.settings.system)
    for number in range(units // _PER_SESSION):
        name, start = f"s{number}", _START + timedelta(hours=2 * number)
        texts = [f"My {' '.join(random.choices(_WORDS, k=6))} {random.randrange(1000)}." for _ in range(_PER_SESSION)]
        turns = [
            Turn(f"{name}.{place}", "user", "User", text, start + timedelta(minutes=place))
            for place, text in enumerate(texts)
        ]
        changes: list[Change] = [AddUnit(_unit(turn, name), turn.time) for turn in turns]
        if number and number % 10 == 0:
            link = Link(f"{name}.0@u0", f"s{number - 10}.0@u0", "supersedes", 0.8)
            changes.append(AddLink(link, start))
        journal.add_turns(name, turns)
        journal.close(name)
        journal.finish(name, changes)


def _unit(turn: Turn, session: str) -> Unit:
    text = f"User: {turn.text}"
    return Unit(f"{turn.id}@u0", text, text, "statement", "User", session, (turn.id,), turn.time, turn.time, ())


def measure(units: int, rounds: int) -> list[dict[str, object]]:
    """Milliseconds of each view: the first time, and the 50th and 95th percentile of the others, by the clock and of
    processor time, which other work on the machine does not lengthen."""
    with TemporaryDirectory() as folder:
        flags = {"data": Path(folder), "retrieval": {"retriever": "bm25"}, "server": {"max_body_kb": 64}}
        with Runtime(load_settings(None, flags), llm=ScriptedLLM(lambda _: "Yes.")) as runtime:
            fill(runtime, units)
            with TestClient(create_app(runtime), base_url="http://localhost") as client:
                client.get("/why?q=warm")  # loads the bank and its index
                return [{"view": name, **_time(client, address, rounds)} for name, address in VIEWS.items()]


def _time(client: TestClient, address: str, rounds: int) -> dict[str, float]:
    seconds, processor = [], []
    for _ in range(rounds + 1):
        start, start_of_work = perf_counter(), process_time()
        response = client.get(address)
        seconds.append(perf_counter() - start)
        processor.append(process_time() - start_of_work)
        assert response.status_code == 200, response.text
    p50, p95 = 1000 * np.percentile(seconds[1:], [50, 95])
    cpu95 = 1000 * np.percentile(processor[1:], 95)
    figures = {"first_ms": 1000 * seconds[0], "p50_ms": p50, "p95_ms": p95, "cpu_p95_ms": cpu95}
    return {name: round(float(value), 1) for name, value in figures.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    rows = measure(arguments.units, arguments.rounds)
    print(json.dumps({"units": arguments.units, "rows": rows, "versions": versions()}, indent=2))
