"""Does `localmem bench latency` measure what `vllm bench serve` measures? Prints the ratios of both as JSON.

Both send the same prompts to one vLLM server of the configured model in turn; no round finds another's prompts in the
prefix cache. vLLM counts the empty piece that opens a stream, so n tokens have n gaps, one of them of no length; ours
get that gap too before they are compared.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import cast

from localmem.benchmark.latency import client
from localmem.benchmark.latency.client import Agents, AnsweredTurn, SimulatedUser, run_tasks
from localmem.benchmark.latency.result import Sample, compute_figures
from localmem.benchmark.latency.stopwatch import Stopwatch
from localmem.benchmark.recipes import Load
from localmem.config import load_settings
from localmem.llm.base import LLM
from localmem.llm.remote.remote_llm import RemoteLLM
from localmem.llm.vllm.vllm_server import VllmServer
from localmem.reporting.provenance import MachineMonitor, machine, marks, observe, versions
from localmem.types import Message, Prompt
from localmem.weights import model_path

Figures = Mapping[str, float]

_STATISTICS = (f"{name}_{kind}_ms" for kind in ("ttft", "tpot", "itl", "e2el") for name in ("mean", "median", "p95"))
FIGURES = (*_STATISTICS, "request_throughput", "output_throughput")
# `vllm bench serve` looks for a distribution called vllm, which a CPU build is not; this is the inside of the command.
_PROGRAM = """
import sys
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
main(parser.parse_args(sys.argv[1:]))
"""


def measure_ours(prompts: Sequence[str], answer: int, concurrency: int, llm: LLM) -> Figures:
    """Through the bare part of the latency benchmark."""
    stopwatch, salt, samples = Stopwatch(), secrets.token_hex(8), list[Sample]()
    start = stopwatch.now()

    def send(text: str, due: float | None) -> None:
        extra = {"ignore_eos": True, "cache_salt": salt}
        prompt = Prompt("bench/bare", (Message("user", text),), max_tokens=answer, seed=None, extra=extra)
        now = client.FIRST_DAY
        user = SimulatedUser("bare", "user", cast("Agents", None), stopwatch, iter(()), now, start, answer)
        turn = AnsweredTurn(Sample("bare", "turn", "user", "", 1, 0.0, None, 0.0), prompt)
        samples.extend(filter(None, [user.send_bare(llm, turn, due)]))

    tasks: list[list[Callable[[float | None], None]]] = [[partial(send, text)] for text in prompts]
    seconds = run_tasks(Load("closed", concurrency=concurrency), tasks, stopwatch.now, salt)
    if failed := [sample.error for sample in samples if sample.error]:
        raise RuntimeError(f"{len(failed)} of {len(samples)} requests failed: {failed[0]}")
    return compute_figures([replace(sample, itl_ms=(0.0, *sample.itl_ms)) for sample in samples], seconds, {})


def measure_theirs(prompts: Sequence[str], answer: int, concurrency: int, server: VllmServer, model: str) -> Figures:
    """`vllm bench serve` in a process of its own."""
    with TemporaryDirectory(prefix="localmem-agreement-") as folder:
        dataset, result = Path(folder, "prompts.jsonl"), Path(folder, "result.json")
        dataset.write_text("\n".join(json.dumps({"prompt": text}) for text in prompts) + "\n", encoding="utf-8")
        options = {
            "--backend": "openai-chat",
            "--endpoint": "/v1/chat/completions",
            "--base-url": server.url,
            "--model": model,
            "--tokenizer": str(model_path(model)),
            "--dataset-name": "custom",
            "--dataset-path": str(dataset),
            "--num-prompts": str(len(prompts)),
            "--custom-output-len": str(answer),
            "--max-concurrency": str(concurrency),
            "--temperature": "0",
            "--extra-body": json.dumps({"cache_salt": secrets.token_hex(8)}),
            "--ready-check-timeout-sec": "0",  # the check would send the first prompt twice
            "--percentile-metrics": "ttft,tpot,itl,e2el",
            "--metric-percentiles": "50,90,95,99",
            "--result-dir": folder,
            "--result-filename": result.name,
        }
        flags = ["--ignore-eos", "--disable-shuffle", "--skip-chat-template", "--save-result", "--disable-tqdm"]
        arguments = [word for option in options.items() for word in option]
        environment = {"OPENAI_API_KEY": server.api_key, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, *arguments, *flags],
            env={**os.environ, **environment},
            stdout=sys.stderr,
            check=True,
        )
        report = json.loads(result.read_text(encoding="utf-8"))
    if report["completed"] != len(prompts):
        raise RuntimeError(f"vllm bench serve: {report['completed']} of {len(prompts)} requests were answered")
    return {name: float(value) for name, value in report.items() if isinstance(value, int | float)}


def measure(count: int, answer: int, concurrency: int, rounds: int, seed: int) -> dict[str, object]:
    """Medians of all rounds, their ratio, and the range of the ratios of single rounds."""
    settings = load_settings()
    texts = client.user_texts(0, 1, seed, "bench")
    prompts = [" ".join(islice(texts, 4)) for _ in range(count)]
    path = model_path(settings.model)
    with VllmServer(path, name=settings.model, log=settings.data / "vllm.log") as server:
        llm = RemoteLLM(server.url, name=settings.model, tokenizer=path, api_key=server.api_key, server=server)
        measure_ours([" ".join(islice(texts, 4)) for _ in range(4)], answer, concurrency, llm)  # warm up
        before, pairs = observe(), []
        with MachineMonitor() as monitor:
            for number in range(rounds):
                ways: list[Callable[[], Figures]] = [
                    lambda: measure_ours(prompts, answer, concurrency, llm),
                    lambda: measure_theirs(prompts, answer, concurrency, server, settings.model),
                ]
                results = {way: ways[way]() for way in ((0, 1) if number % 2 else (1, 0))}
                pairs.append((results[0], results[1]))
        cautions = marks(before, monitor.usage, observe())
        llm.close()
    rows = {}
    for name in FIGURES:
        ratios = [ours[name] / theirs[name] for ours, theirs in pairs]
        ours, theirs = (median(pair[side][name] for pair in pairs) for side in (0, 1))
        rows[name] = {"ours": ours, "theirs": theirs, "ratio": ours / theirs, "min": min(ratios), "max": max(ratios)}
    return {
        "model": settings.model,
        "rows": rows,
        "marks": cautions,
        "machine": machine(settings.data),
        "versions": versions(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (("prompts", 24), ("answer", 32), ("concurrency", 4), ("rounds", 6), ("seed", 0)):
        parser.add_argument(f"--{option}", type=int, default=default)
    options = parser.parse_args()
    print(
        json.dumps(
            measure(options.prompts, options.answer, options.concurrency, options.rounds, options.seed), indent=2
        )
    )
