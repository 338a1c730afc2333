#!/usr/bin/env python3
"""Checks the whole GPU path on this machine in less than 25 minutes, and writes one JSON file.

Each step is a command of its own with a time limit; a failed or slow one never stops the others. The file is written
after each step, so that a run that was cut off continues where it ended: a step that passed at the same git revision
and on the same GPU is not run again. Needs scripts/setup --gpu and the starters' weights (`localmem models pull`).
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
BUDGET = 25 * 60  # seconds, of all limits together
NONE = "none"
TAIL = 2000  # characters of a step's output that are kept when it fails


@dataclass(frozen=True, slots=True)
class Step:
    """A command and its limit in seconds."""

    name: str
    command: Sequence[str]
    limit: int


def plan(scratch: Path, model: str) -> list[Step]:
    """The steps in their order: cheap ones first, so that a missing driver is known at once."""
    python, localmem = sys.executable, [sys.executable, "-m", "localmem"]
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "-rs"]
    llm = {"backend": "vllm", "context_length": 8192}  # the most of the starter, which is the default model
    backbone = f"settings={json.dumps({'model': model, 'llm': llm})}"
    t5 = "flan-t5-base" if (ROOT / "models" / "weights" / "flan-t5-base").exists() else "t5:small"  # no weights: random
    operations = [*localmem, "finetune", "operations", "--base", t5, "--epochs", "1"]
    reranker = [*localmem, "finetune", "reranker", "--lessons", "finetune/lessons/people", "--epochs", "1"]
    hour = [*localmem, "bench", "latency", "--recipe", "configs/bench/a100_hour.yaml", "--json"]
    return [
        Step("doctor", [*localmem, "doctor", "--json"], 40),
        Step("retrieval", [*tests, "tests/retrieval"], 90),
        Step(
            "faiss",
            [*localmem, "bench", "retrieval", "--set", "units=[10000,100000]", "--kind", "flat", "--kind", "ivf",
             "--set", "dimension=384", "--json"],
            150,
        ),
        Step("adapters", [*tests, "tests/llm"], 200),
        Step("lora", [*tests, "tests/finetune"], 120),
        Step("t5", [*operations, "--set", "precision=bfloat16", "--out", str(scratch / "t5"), "--json"], 150),
        Step("reranker", [*reranker, "--out", str(scratch / "reranker"), "--json"], 120),
        Step(
            "serve",
            [*localmem, "bench", "serve", "--users", "8", "--turns", "4", "--think", "1", "--set",
             "limits={ttft: 2000}", "--set", backbone, "--json"],
            240,
        ),
        Step(
            "latency",
            [*hour, "--model", model, "--system", "exchange_retrieval", "--system", "evidence", "--concurrency", "8",
             "--past-sessions", "20", "--set", backbone, "--out", str(scratch / "latency")],
            270,
        ),
    ]  # fmt: skip


def run(step: Step) -> dict[str, object]:
    """The result of a step: passed, failed or timed out, with its output as JSON where it is that."""
    start = perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(step.command, cwd=ROOT, stdout=out, stderr=err, text=True, start_new_session=True)
        try:
            code: int | None = process.wait(step.limit)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            os.killpg(process.pid, signal.SIGKILL)  # of a session that this script made
            process.wait()
            code = None
        texts = [_read(each) for each in (out, err)]
    state = {0: "passed", None: "timed out"}.get(code, "failed")
    result: dict[str, object] = {"state": state, "seconds": round(perf_counter() - start, 1), **asdict(step)}
    try:
        result["output"] = json.loads(texts[0])
    except ValueError:
        result["output"] = texts[0][-TAIL:]
    return result if state == "passed" else {**result, "errors": texts[1][-TAIL:]}


def place() -> dict[str, str]:
    """What a result is valid for: the git revision, and the GPU with its driver."""
    revision = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    gpu = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return {"revision": _first_line(revision), "gpu": _first_line(gpu)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu-check.json"), help="JSON file of the results.")
    parser.add_argument("--model", default="smollm2-135m-instruct", help="Backbone of serve and latency.")
    parser.add_argument("--step", action="append", help="Run only this step, even if it passed. Repeatable.")
    parser.add_argument("--plan", action="store_true", help="Print the steps and their limits, and run none.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="localmem-gpu-") as scratch:
        steps = plan(Path(scratch), arguments.model)
        if arguments.plan:
            print("\n".join(f"{step.limit:4d} s  {step.name}: {' '.join(step.command)}" for step in steps))
            return
        if unknown := sorted(set(arguments.step or ()) - {step.name for step in steps}):
            sys.exit(f"gpu_check: there is no step {unknown[0]!r}; --plan lists them")
        where = place()
        if where["gpu"] == NONE:
            sys.exit("gpu_check: nvidia-smi shows no GPU here; `localmem doctor` says what this machine lacks")
        sys.exit(check(steps, arguments.out, where, arguments.step))


def check(steps: Sequence[Step], out: Path, where: Mapping[str, str], only: Sequence[str] | None = None) -> int:
    """Runs the steps that have not passed here, writes `out` after each; returns 0 if none failed."""
    report: dict[str, object] = {**where, "steps": {}}
    if out.is_file():
        earlier = json.loads(out.read_text(encoding="utf-8"))
        if all(earlier.get(name) == value for name, value in where.items()):
            report = earlier
    results: dict[str, dict[str, object]] = report["steps"]  # type: ignore[assignment]  # as it is written below
    for step in steps:
        if (only and step.name not in only) or (not only and results.get(step.name, {}).get("state") == "passed"):
            continue
        print(f"{step.name}: at most {step.limit} s", file=sys.stderr)
        results[step.name] = run(step)
        print(f"{step.name}: {results[step.name]['state']}", file=sys.stderr)
        draft = out.with_name(f".{out.name}")
        draft.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        draft.replace(out)
    states = [results[step.name]["state"] for step in steps if step.name in results]
    return int(any(state in ("failed", "timed out") for state in states))


def _read(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _first_line(command: Sequence[str]) -> str:
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    except FileNotFoundError:
        return NONE
    return lines[0] if lines else NONE


if __name__ == "__main__":
    main()
