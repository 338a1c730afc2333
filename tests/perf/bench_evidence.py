"""How long the default memory takes: a search with its encoding, and a turn until it is durable and searchable.

Prints JSON, with the processor time of all threads beside each time; `exchange` is a turn that is answered, by a
backbone that takes no time. Set GOMP_SPINCOUNT=1000, as the command does for itself. Vectors of what was said are
random, so that a large memory is made quickly; what is asked and told is really encoded, by torch, as in a process that
has learned something before. The store is a file in a temporary folder.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np

from localmem.benchmark.corpus import Rows, unit_length
from localmem.benchmark.latency.client import user_texts
from localmem.chat.conversation import Conversation
from localmem.config import load_settings
from localmem.llm.scripted import ScriptedLLM
from localmem.retrieval.base import Encoder, Side
from localmem.retrieval.dense import wait_for_builds
from localmem.retrieval.encoder import CachedEncoder
from localmem.runtime import Runtime
from localmem.types import AddUnit, Session, Turn

Part = TypeVar("Part")
_START = datetime(2026, 1, 1, tzinfo=UTC)
_BATCH = 2_000  # sessions added at a time
_REPLY = "It sounds like a plan worth keeping. I would put a note beside the door, so that nobody forgets it next week."
_WARMING = 5  # searches and turns that are not timed


class RandomPassages:
    """`inner`, but random vectors for passages until `real`; `seconds` adds up what encoding takes."""

    def __init__(self, inner: Encoder) -> None:
        self._inner = inner
        self._random = np.random.default_rng(0)
        self.real = False
        self.seconds = 0.0
        self.identity, self.dimension = inner.identity, inner.dimension

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        """(n, dimension) rows of unit length."""
        start = time.perf_counter()
        if side == "passage" and not self.real:
            rows = unit_length(self._random.standard_normal((len(texts), self.dimension)).astype(np.float32))
        else:
            rows = self._inner.encode(texts, side)
        self.seconds += time.perf_counter() - start
        return rows

    def read_ahead(self, texts: Sequence[str]) -> None:
        """As SentenceEncoder does, which remembers them."""
        self.encode(texts, "passage")


def measure(units: int, rounds: int, reranker: str | None, folder: Path) -> dict[str, object]:
    """Milliseconds of a search and of a turn at this many units; p50 and p95."""
    settings = load_settings(flags={"system": "evidence", "data": str(folder)})
    encoders: list[RandomPassages] = []

    def replace_encoder(part: Part) -> Part:
        if isinstance(part, CachedEncoder):
            encoders.append(RandomPassages(part.inner))
            part.inner = encoders[0]
        return part

    settings = settings.model_copy(update={"options": {"reranker": reranker}})
    with Runtime(settings, llm=ScriptedLLM(lambda _: _REPLY), wrap=replace_encoder) as runtime:
        conversation = runtime.agent("user")
        texts = user_texts(units // 2, 1, 0, "user")
        _fill(conversation, islice(texts, units // 2))
        (encoder,) = encoders
        encoder.real = True
        encoder.encode(["a passage long enough for torch " * 40], "passage")
        messages = list(islice(texts, rounds + _WARMING))
        questions = [text.partition(" By the way")[0] for text in messages]
        memory, now = conversation.memory, _START + timedelta(minutes=units)
        return {
            "units": sum(1 for _ in memory.bank.live()),
            "reranker": reranker,
            "load": os.getloadavg()[0],
            "question": _time(lambda text: memory.search(text, 10), questions, encoder),
            "message": _time(lambda text: memory.search(text, 10), messages, encoder),
            "turn": _time(lambda text: conversation.log_turns(text, now, "new"), messages, encoder),
            "exchange": _whole(_time(lambda text: conversation.chat(f"Well: {text}", now), messages, encoder)),
        }


def _fill(conversation: Conversation, texts: Iterator[str]) -> None:
    """Commits sessions of an exchange each; without links, as random vectors make random updates."""
    sessions = [_session(number, text) for number, text in enumerate(texts)]
    changes = [
        change
        for session in sessions
        for change in conversation.memory.end_session(session)
        if isinstance(change, AddUnit)
    ]
    for start in range(0, len(changes), _BATCH):
        conversation.writer.commit(f"past/{start}", changes[start : start + _BATCH])
    wait_for_builds()


def _session(number: int, text: str) -> Session:
    time = _START + timedelta(minutes=number)
    reply = f"Noted {number}: it sounds like a plan worth keeping."
    said = Turn(f"s{number}.0", "user", "User", text, time)
    return Session(f"s{number}", (said, Turn(f"s{number}.1", "assistant", "Assistant", reply, time)))


def _time(run: Callable[[str], object], texts: Sequence[str], encoder: RandomPassages) -> dict[str, float]:
    """p50 and p95 with the encoding, beyond it, and of the processor time."""
    rows = []
    for text in texts:
        encoder.seconds, start, cpu = 0.0, time.perf_counter(), time.process_time()
        run(text)
        seconds = time.perf_counter() - start
        rows.append((seconds, seconds - encoder.seconds, time.process_time() - cpu))
    columns = dict(zip(("", "beyond_", "cpu_"), 1000 * np.array(rows[_WARMING:]).T, strict=True))
    figures = {(name, share): np.percentile(values, share) for name, values in columns.items() for share in (50, 95)}
    return {f"{name}p{share}": round(float(value), 2) for (name, share), value in figures.items()}


def _whole(figures: dict[str, float]) -> dict[str, float]:
    """The figures of work on several threads, whose seconds of encoding add up to more than passed."""
    return {name: value for name, value in figures.items() if not name.startswith("beyond")}


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, nargs="+", default=[1_000])
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--reranker", default=None)
    parser.add_argument("--folder", type=Path, default=None, help="where the store is made (default: the system's)")
    arguments = parser.parse_args()
    for units in arguments.units:
        with TemporaryDirectory(dir=arguments.folder) as folder:
            print(json.dumps(measure(units, arguments.searches, arguments.reranker, Path(folder))), flush=True)


if __name__ == "__main__":
    main()
