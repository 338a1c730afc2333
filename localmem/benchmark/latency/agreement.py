"""Whether this bench and vLLM's own measure the same: the same prompts, sent to one server by each of them in turn.

Ours is the bare part of `localmem bench latency` as it stands; theirs is `vllm bench serve` in a process of its own.
vLLM counts the empty piece that opens a stream, so that n tokens have n gaps, one of them of no length; elsewhere in
this bench they have n - 1, as TPOT has, and here ours are given theirs. Knows where the server is; starts none.
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import TracebackType

from localmem.benchmark.latency import figures, synthetic_history
from localmem.benchmark.latency.client import Asked, Talk
from localmem.benchmark.latency.load_generator import drive
from localmem.benchmark.latency.result import Load, Sample
from localmem.benchmark.latency.stopwatch import Clock
from localmem.chat.agent import ChatAgent
from localmem.errors import LLMError
from localmem.llm.base import LLM
from localmem.types import Message, Prompt

Figures = Mapping[str, float]

_TIMES = (f"{rank}_{what}_ms" for what in ("ttft", "tpot", "itl", "e2el") for rank in ("mean", "median", "p95"))
SHOWN = (*_TIMES, "request_throughput", "output_throughput")
_PARTS = 4  # of a prompt
# The command `vllm bench serve` looks for a distribution called vllm, which a CPU build is not; this is its inside,
# once for each list of arguments that comes. What it prints goes where errors go.
_PROGRAM = """
import json, sys
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
parser = FlexibleArgumentParser()
add_cli_args(parser)
answers, sys.stdout = sys.stdout, sys.stderr
print("ready", file=answers, flush=True)
for line in sys.stdin:
    main(parser.parse_args(json.loads(line)))
    print("done", file=answers, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Work:
    """What both send: each prompt once, `concurrency` at any time, each answered with `answer` tokens exactly."""

    prompts: tuple[str, ...]
    answer: int
    concurrency: int

    @classmethod
    def made(cls, count: int, answer: int, concurrency: int, seed: int) -> "Work":
        """Prompts made up from a seed."""
        said = synthetic_history.words(0, 1, seed, "bench")
        return cls(tuple(" ".join(islice(said, _PARTS)) for _ in range(count)), answer, concurrency)


@dataclass(frozen=True, slots=True)
class Server:
    """Where both send it, and how the model is called there; `tokenizer` is a folder for theirs."""

    url: str
    key: str
    model: str
    tokenizer: Path


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: the medians of all rounds, their ratio, and the least and greatest ratio of a single round."""

    figure: str
    ours: float
    theirs: float
    ratio: float
    least: float
    greatest: float


def rounds(work: Work, llm: LLM, server: Server, count: int) -> Iterator[tuple[Figures, Figures]]:
    """So many rounds, ours and theirs in turn; who is first changes. No round finds another's prompts in the cache."""
    with Theirs(server) as bench:
        ways: tuple[Callable[[], Figures], ...] = (lambda: ours(work, llm), lambda: bench.run(work))
        for number in range(count):
            first = number % 2
            found = {way: ways[way]() for way in (first, 1 - first)}
            yield found[0], found[1]


def rows(found: Sequence[tuple[Figures, Figures]]) -> list[Row]:
    """The figures that both tell."""
    return [_row(name, found) for name in SHOWN if all(name in side for pair in found for side in pair)]


def ours(work: Work, llm: LLM) -> Figures:
    """Through the bench's own bare driver. Raises LLMError where a request failed."""
    clock, salt = Clock(), secrets.token_hex(8)
    began, samples = clock.now(), list[Sample]()
    tasks = [[_task(text, work.answer, salt, llm, clock, began, samples)] for text in work.prompts]
    seconds = drive(Load("closed", concurrency=work.concurrency), tasks, clock.now, salt)
    if failed := [sample.error for sample in samples if sample.error]:
        raise LLMError(f"{len(failed)} of {len(samples)} requests failed: {failed[0]}")
    opened = [replace(sample, itl_ms=(0.0, *sample.itl_ms)) for sample in samples]
    return figures.figures(opened, seconds, {})


class Theirs:
    """`vllm bench serve` in a process that is kept, for it takes long to load; use it with `with`.

    Raises LLMError, with the end of what it said, where it fails or a request of it does.
    """

    def __init__(self, server: Server) -> None:
        self._server = server

    def __enter__(self) -> "Theirs":
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(TemporaryDirectory(prefix="localmem-agreement-")))
            self._log = stack.enter_context((self._folder / "log").open("w+", encoding="utf-8"))
            self._process = stack.enter_context(self._started())
            stack.callback(self._process.kill)
            self._expect("ready")
            self._held = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def run(self, work: Work) -> Figures:
        """All of the work, once."""
        result = self._folder / "result.json"
        result.unlink(missing_ok=True)
        lines = (json.dumps({"prompt": text}) for text in work.prompts)
        (self._folder / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        asked = json.dumps(arguments(work, self._server, self._folder, secrets.token_hex(8)))
        if self._process.stdin:
            self._process.stdin.write(f"{asked}\n")
            self._process.stdin.flush()
        self._expect("done")
        told = json.loads(result.read_text(encoding="utf-8"))
        if told["completed"] != len(work.prompts):
            raise LLMError(f"vllm bench serve: {told['completed']} of {len(work.prompts)} requests were answered")
        return {name: float(value) for name, value in told.items() if isinstance(value, int | float)}

    def _started(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, "OPENAI_API_KEY": self._server.key, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def _expect(self, word: str) -> None:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if line.strip() != word:
            self._log.seek(0)
            raise LLMError(f"vllm bench serve failed: {self._log.read()[-400:].strip()}")


def arguments(work: Work, server: Server, folder: Path, salt: str) -> list[str]:
    """Of `vllm bench serve`. To see whether the server is there it would send the first prompt twice: that is off."""
    named = {
        "--backend": "openai-chat",
        "--endpoint": "/v1/chat/completions",
        "--base-url": server.url,
        "--model": server.model,
        "--tokenizer": str(server.tokenizer),
        "--dataset-name": "custom",
        "--dataset-path": str(folder / "prompts.jsonl"),
        "--num-prompts": str(len(work.prompts)),
        "--custom-output-len": str(work.answer),
        "--max-concurrency": str(work.concurrency),
        "--temperature": "0",
        "--extra-body": json.dumps({"cache_salt": salt}),
        "--ready-check-timeout-sec": "0",
        "--percentile-metrics": "ttft,tpot,itl,e2el",
        "--metric-percentiles": "50,90,95,99",
        "--result-dir": str(folder),
        "--result-filename": "result.json",
    }
    flags = ["--ignore-eos", "--disable-shuffle", "--skip-chat-template", "--save-result", "--disable-tqdm"]
    return [*(word for pair in named.items() for word in pair), *flags]


def _task(
    text: str, answer: int, salt: str, llm: LLM, clock: Clock, began: float, samples: list[Sample]
) -> Callable[[float | None], None]:
    extra = {"ignore_eos": True, "cache_salt": salt}
    prompt = Prompt("bench/bare", (Message("user", text),), max_tokens=answer, seed=None, extra=extra)
    talk = Talk("agreement", "user", _Nobody(), clock, iter(()), synthetic_history.BEGAN, began, answer)
    asked = Asked(Sample("agreement", "turn", "user", "", 1, 0.0, None, 0.0), prompt)

    def task(due: float | None) -> None:
        if sample := talk.bare(llm, asked, due):
            samples.append(sample)

    return task


class _Nobody:
    """A home without agents: nobody talks here, prompts go straight to the backbone."""

    def agent(self, user: str) -> ChatAgent:
        raise NotImplementedError(f"{user} has no agent here")


def _row(name: str, found: Sequence[tuple[Figures, Figures]]) -> Row:
    mine, other = (median(pair[side][name] for pair in found) for side in (0, 1))
    each = [pair[0][name] / pair[1][name] for pair in found]
    return Row(name, round(mine, 3), round(other, 3), mine / other, min(each), max(each))
