# mypy: ignore-errors
# The suite is not in the environment in which types are checked.
"""context-bench against a running localmem: `python tests/peers/contextbench.py URL FOLDER AUTHORS`.

Runs in the environment of `context-bench`. An example is a question about a person's conversations (scenarios, one JSON
file a person); its context is all that was said, and what localmem makes of it is what it recalls. Scored are the share
of answers that stand in it and how much shorter it is, in words: the suite's own tokenizer would be downloaded.
"""

import json
import sys
from pathlib import Path

import requests
from context_bench import evaluate
from context_bench.metrics import CompressionRatio, MeanScore
from context_bench.utils import tokens

SKIPPED = ("abstention", "counterfactual", "forgotten")


def call(method: str, path: str, **fields: object) -> dict[str, object]:
    """The response of the server named on the command line."""
    response = requests.request(method, sys.argv[1] + path, timeout=600, **fields)
    return response.json()


class Words:
    """Counts in place of the tokenizer."""

    def encode(self, text: str) -> list[str]:
        return text.split()


class Localmem:
    """Remembers a person when the first question about them comes."""

    name, person = "localmem", None

    def process(self, example: dict[str, object]) -> dict[str, object]:
        if self.person != example["person"]:
            self.person = example["person"]
            call("DELETE", "/v1/memories?confirm=all")
            call("POST", "/v1/sessions", json={"sessions": example["sessions"]})
            while not call("GET", "/v1/jobs?wait=60")["done"]:
                pass
        recalled = call("POST", "/v1/memories/recall", json={"text": example["question"]})
        return {**example, "context": recalled["text"]}


class HoldsAnswer:
    """Whether the context holds one of the words of a right answer."""

    name = "answer"

    def score(self, _: dict[str, object], processed: dict[str, object]) -> dict[str, float]:
        context = processed["context"].lower()
        return {"score": float(any(word.lower() in context for word in processed["answers"]))}


class Everything:
    """The baseline: all that was said."""

    name = "everything"

    def process(self, example: dict[str, object]) -> dict[str, object]:
        return example


def read_examples(file: Path) -> list[dict[str, object]]:
    """The questions about one person."""
    scenario = json.loads(file.read_text(encoding="utf-8"))
    sessions = [
        {
            "time": f"{session['started_at']}{'' if session['started_at'][-6] in '+-' else '+00:00'}",
            "turns": [{"role": turn["role"], "text": turn["content"]} for turn in session["turns"]],
        }
        for session in scenario["sessions"]
    ]
    context = "\n".join(turn["text"] for session in sessions for turn in session["turns"])
    return [
        {
            "id": f"{file.stem}/{number}", "person": file.stem, "sessions": sessions, "context": context,
            "question": probe["question"], "answers": probe["must_contain"],
        }
        for number, probe in enumerate(scenario["probes"])
        if probe["type"] not in SKIPPED and probe["must_contain"]
    ]  # fmt: skip


if __name__ == "__main__":
    tokens._encoder = Words()
    files = [file for file in sorted(Path(sys.argv[2]).glob("*.json")) if file.stem[0] in sys.argv[3]]
    examples = [example for file in files for example in read_examples(file)]
    metrics = [MeanScore(), CompressionRatio()]
    result = evaluate([Localmem(), Everything()], examples, [HoldsAnswer()], metrics, text_fields=["context"])
    sys.stdout.write(f"{len(examples)} questions\n{json.dumps(result.summary, indent=1)}\n")
