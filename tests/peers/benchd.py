# mypy: ignore-errors
# The suite is not in the environment in which types are checked.
"""Bench'd's benchmarks against a running localmem: `python tests/peers/benchd.py URL reply|recall reliability-v1 ...`.

Runs in the environment of `benchd-harness`. Scored is the reply to a question, or what was recalled for it, as of the
suite's other adapters.
"""

import sys
import tempfile
from datetime import UTC, datetime

import requests
from benchd_harness.adapters.base import BaseAdapter
from benchd_harness.benchmarks import get_benchmark
from benchd_harness.runner import BenchmarkRunner

NOW = datetime.now(UTC).isoformat()


def call(method: str, path: str, **fields: object) -> requests.Response:
    """The response of the server named on the command line."""
    return requests.request(method, sys.argv[1] + path, timeout=600, **fields)


class Localmem(BaseAdapter):
    """One user; a question at a time."""

    name, version = "localmem", "1"

    def reset(self) -> None:
        call("DELETE", "/v1/memories?confirm=all")

    def ingest(self, turns: list[dict[str, object]]) -> None:
        sent = [{"role": turn["role"], "text": turn["content"], "time": turn.get("timestamp") or NOW} for turn in turns]
        call("POST", "/v1/sessions", json={"sessions": [{"turns": sent}]}).raise_for_status()
        while not call("GET", "/v1/jobs?wait=60").json()["done"]:
            pass

    def recall(self, query: str) -> str:
        if sys.argv[2] == "recall":
            return call("POST", "/v1/memories/recall", json={"text": query}).json()["text"]
        body = {"model": "localmem", "messages": [{"role": "user", "content": query}], "temperature": 0}
        answer = call("POST", "/v1/chat/completions", json=body, headers={"x-localmem": "read"})
        return answer.json()["choices"][0]["message"]["content"]


if __name__ == "__main__":
    for slug in sys.argv[3:]:
        with tempfile.TemporaryDirectory() as folder:
            BenchmarkRunner(Localmem(), get_benchmark(slug), output_dir=folder).run()
