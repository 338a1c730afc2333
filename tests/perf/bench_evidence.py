"""How long the evidence memory takes: a search with its encoding, and a turn that becomes searchable. Prints JSON.

Vectors of what was said are random, so that a large memory is made quickly; questions are really encoded.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice

import numpy as np

from localmem import factory
from localmem.benchmark.corpus import Rows, unit_length
from localmem.benchmark.latency.client import user_texts
from localmem.config import load_settings
from localmem.llm.scripted import ScriptedLLM
from localmem.retrieval.base import Encoder, Side
from localmem.retrieval.dense import wait_for_builds
from localmem.types import AddUnit, Session, Turn

_START = datetime(2026, 1, 1, tzinfo=UTC)
_BATCH = 2_000  # sessions added at a time


class RandomPassages:
    """`inner` for queries, and random vectors for passages."""

    def __init__(self, inner: Encoder) -> None:
        self._inner = inner
        self._random = np.random.default_rng(0)
        self.seconds = 0.0
        self.identity, self.dimension = inner.identity, inner.dimension

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        """(n, dimension) rows of unit length."""
        start = time.perf_counter()
        if side == "passage":
            rows = unit_length(self._random.standard_normal((len(texts), self.dimension)).astype(np.float32))
        else:
            rows = self._inner.encode(texts, side)
        self.seconds += time.perf_counter() - start
        return rows


def measure(units: int, searches: int, reranker: str | None) -> dict[str, object]:
    """Milliseconds of a search and of a turn at this many units; p50 and p95."""
    settings = load_settings(flags={"system": "evidence"})
    settings = settings.model_copy(update={"options": {"reranker": reranker}})
    encoder = RandomPassages(factory.bare_encoder(settings))
    system = factory.SYSTEMS["evidence"]
    parts = factory.Parts(ScriptedLLM(str), lambda: factory.retriever(settings, lambda: encoder, system=system))
    memory = factory.memory(settings, parts)
    texts = user_texts(units // 2, 1, 0, "user")
    sessions = [_session(number, text) for number, text in enumerate(islice(texts, units // 2 + searches))]
    for start in range(0, units // 2, _BATCH):
        batch = sessions[start : min(start + _BATCH, units // 2)]
        memory.apply([change for session in batch for change in _without_links(memory.end_session(session))])
    wait_for_builds()
    new = sessions[units // 2 :]
    memory.search(new[0].turns[0].text, 10)
    return {
        "units": sum(1 for _ in memory.bank.live()),
        "reranker": reranker,
        "search": _time(lambda session: memory.search(session.turns[0].text, 10), new, encoder),
        "turn": _time(lambda session: memory.apply(memory.observe_turn(session)), new, encoder),
    }


def _without_links(changes: Sequence[object]) -> list[AddUnit]:
    """Random vectors make random updates."""
    return [change for change in changes if isinstance(change, AddUnit)]


def _session(number: int, text: str) -> Session:
    time = _START + timedelta(minutes=number)
    reply = f"Noted {number}: it sounds like a plan worth keeping."
    said = Turn(f"s{number}.0", "user", "User", text, time)
    return Session(f"s{number}", (said, Turn(f"s{number}.1", "assistant", "Assistant", reply, time)))


def _time(run: Callable[[Session], object], sessions: Sequence[Session], encoder: RandomPassages) -> dict[str, float]:
    """p50 and p95 with the encoding, and p50 and p95 beyond it."""
    whole, beyond = [], []
    for session in sessions:
        encoder.seconds, start = 0.0, time.perf_counter()
        run(session)
        whole.append(1000 * (time.perf_counter() - start))
        beyond.append(whole[-1] - 1000 * encoder.seconds)
    figures = {"p50": (whole, 50), "p95": (whole, 95), "beyond_p50": (beyond, 50), "beyond_p95": (beyond, 95)}
    return {name: round(float(np.percentile(values, share)), 2) for name, (values, share) in figures.items()}


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, nargs="+", default=[1_000])
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--reranker", default=None)
    arguments = parser.parse_args()
    results = [measure(units, arguments.searches, arguments.reranker) for units in arguments.units]
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
