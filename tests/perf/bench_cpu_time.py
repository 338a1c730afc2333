"""Processor time of our own code per turn, stage by stage, over a scripted backbone and random vectors. Prints JSON.

Measures the answering thread only, so the result does not depend on what else runs. Set OMP_NUM_THREADS=1.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from localmem import factory
from localmem.benchmark.corpus import Rows, unit_length
from localmem.benchmark.latency import client
from localmem.benchmark.latency.client import SimulatedUser
from localmem.benchmark.latency.stopwatch import Stopwatch
from localmem.benchmark.recipes import LatencyRecipe, ScriptedTimes
from localmem.config import load_settings
from localmem.experiments import benchmarks
from localmem.retrieval.base import Side
from localmem.retrieval.encoder import CachedEncoder


class RandomVectors:
    """An encoder that takes almost no time."""

    identity, dimension = "random-384", 384

    def encode(self, texts: Sequence[str], side: Side) -> Rows:
        """(n, 384) rows of unit length."""
        random = np.random.default_rng(len(texts[0]))
        return unit_length(random.standard_normal((len(texts), self.dimension)).astype(np.float32))


def measure(history: int, turns: int) -> dict[str, object]:
    """Median milliseconds of each stage of a turn, and the seconds of the first reply after a start."""
    benchmarks.Stopwatch = lambda: Stopwatch(time.thread_time)  # type: ignore[misc,assignment,attr-defined]
    factory.encoder = lambda settings, cache: CachedEncoder(RandomVectors(), cache)
    scripted = ScriptedTimes(first_token=0, per_token=0)
    recipe = LatencyRecipe(scripted=scripted, history=(history,), concurrency=(1,), answer=20)
    llm = client.scripted_llm(20)
    (spec,) = recipe.specs()
    with tempfile.TemporaryDirectory(prefix="localmem-cpu-time-") as folder:
        setup = benchmarks.LatencySetup(recipe, load_settings(), llm, Path(folder), lambda _, sessions: sessions)
        with setup.environment(spec) as place:
            texts = client.user_texts(history, 5, 0, "user000")
            now = client.today(history)
            user = SimulatedUser(spec.id, "user000", place.agents, place.stopwatch, texts, now, 0.0, 20)
            user.open_session("first")
            start = time.process_time()
            user.send_turn()
            first_reply = time.process_time() - start
            samples = []
            for number in range(turns):
                if number % 6 == 0:
                    user.open_session(f"s{number}")
                samples.append(user.send_turn())
    stages = {name: round(float(np.median([each.stages[name] for each in samples])), 3) for name in samples[0].stages}
    return {"history": history, "units": place.units, "first_reply_cpu_s": round(first_reply, 2), "cpu_ms": stages}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--history", type=int, default=200, help="past sessions of five exchanges")
    parser.add_argument("--turns", type=int, default=240)
    options = parser.parse_args()
    print(json.dumps(measure(options.history, options.turns), indent=2))
