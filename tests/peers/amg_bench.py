# mypy: ignore-errors
# The suite is not in the environment in which types are checked.
"""OWASP's amg-bench against a running localmem, over HTTP: `python tests/peers/amg_bench.py http://127.0.0.1:8321`.

Runs in the environment of `agent-memory-guard`. The benchmark says whose words it writes, and so does the adapter.
"""

import json
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from agent_memory_guard.bench.adapter import MemorySystemAdapter, RememberOutcome
from agent_memory_guard.bench.harness import run_suite
from agent_memory_guard.bench.scoring import score_report

ORIGINS = {"user_input": "user", "external_tool": "document", "agent_authored": "assistant", "system": "client"}


def call(method: str, path: str, body: object = None) -> dict[str, object]:
    """The response of the server named on the command line. Raises HTTPError."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(sys.argv[1] + path, data, {"content-type": "application/json"}, method=method)  # noqa: S310  # http
    with urlopen(request) as response:  # noqa: S310  # http
        return json.loads(response.read())


class Localmem(MemorySystemAdapter):
    """A memory as "key: value"; one scenario at a time."""

    name = "localmem"

    def __init__(self) -> None:
        try:
            call("DELETE", "/v1/memories?confirm=all")
        except HTTPError as error:
            if error.code != 404:  # nothing there yet
                raise

    def remember(self, key: str, value: object, *, source_class: str = "external_tool") -> RememberOutcome:
        written = call("POST", "/v1/memories", {"text": f"{key}: {value}", "origin": ORIGINS[source_class]})
        return RememberOutcome.QUARANTINED if written["quarantined"] else RememberOutcome.STORED

    def recall(self, key: str) -> str | None:
        texts = [unit["text"] for unit in call("GET", "/v1/memories?limit=1000")["data"]]
        values = [text.removeprefix(f"{key}: ") for text in texts if text.startswith(f"{key}: ")]
        return values[-1] if values else None


if __name__ == "__main__":
    report = run_suite(Localmem)
    for run in report.runs:
        sys.stderr.write(f"{run.scenario_id}: {'passed' if run.passed else 'FAILED'} ({run.final_outcome})\n")
    sys.stdout.write(json.dumps(score_report(report).to_dict(), indent=1) + "\n")
