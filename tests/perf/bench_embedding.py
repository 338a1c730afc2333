"""Time to embed a question, alone or beside streams of a vLLM server. Prints JSON.

Beside streams, set GOMP_SPINCOUNT=300000 to measure OpenMP's own default; localmem otherwise sets a smaller value.
"""

import argparse
import json
import threading
import time
from pathlib import Path

import numpy as np

from localmem.config import load_settings
from localmem.factory import backbone
from localmem.llm.base import LLM
from localmem.retrieval.encoder import SentenceEncoder
from localmem.types import Message, Prompt

TEXT = "I was thinking about what you told me last week about the garden and the new tomato plants that you put there"


def measure(encoder: SentenceEncoder, batch: int, calls: int = 60) -> dict[str, float]:
    """p50 and p95 in milliseconds of one call with `batch` questions."""
    encoder.encode([TEXT], "query")
    times = []
    for turn in range(calls):
        time.sleep(0.05 * np.random.default_rng(turn).random())
        start = time.perf_counter()
        encoder.encode([f"{TEXT} {turn} {number}" for number in range(batch)], "query")
        times.append(1000 * (time.perf_counter() - start))
    p50, p95 = np.percentile(times, [50, 95])
    return {"batch": batch, "p50_ms": round(float(p50), 1), "p95_ms": round(float(p95), 1)}


def start_stream(llm: LLM, number: int) -> None:
    """Keep one reply after another streaming, on a thread that ends with the process."""

    def run() -> None:
        for turn in range(10_000):
            text = f"{number} {turn} " + " ".join([TEXT] * 20)
            for _ in llm.stream(Prompt(name="agent/respond", messages=(Message("user", text),), max_tokens=16)):
                pass

    threading.Thread(target=run, daemon=True).start()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"))
    parser.add_argument("--weights", type=Path, default=Path("models/weights/minilm-l6-v2"))
    parser.add_argument("--streams", type=int, default=0, help="streams of the configured backbone meanwhile")
    options = parser.parse_args()
    encoder = SentenceEncoder(options.weights, name="minilm", dtype=options.dtype)
    if options.streams:
        llm = backbone(load_settings(), print).llm
        for number in range(options.streams):
            start_stream(llm, number)
        time.sleep(5)
    print(json.dumps([measure(encoder, batch) for batch in ((1,) if options.streams else (1, 2, 4, 8, 16))], indent=2))
