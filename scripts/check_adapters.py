#!/usr/bin/env python3
"""Checks that a vLLM server gives the answers that peft gives in process, with the base model and adapters at once.

Starts a vLLM server of its own, loads the adapters while it runs, sends it held-out prompts for the base model and for
each adapter mixed together, decodes greedily, and compares with transformers and peft in this process.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

try:
    import click

    from localmem.cli.options import DatasetFile, note, print_json
    from localmem.errors import BadInput, LocalmemError
except ImportError as error:
    sys.exit(f"check_adapters: {error}; run scripts/setup, then .venv/bin/python scripts/check_adapters.py")

if TYPE_CHECKING:
    from finetune.engine_parity import Margin, Sameness
    from localmem.llm.base import LLM
    from localmem.llm.vllm.llm import VllmLLM
    from localmem.types import Completion, Prompt

BASE = "base"

Prompts = Mapping[str, Sequence["Prompt"]]  # by the name of who answers
Answers = Mapping[str, Sequence["Completion"]]


@click.command()
@click.option("--base", "model", required=True, help="The base model, by its name or a folder.", metavar="M")
@click.option(
    "--adapter",
    "adapters",
    type=DatasetFile(),
    multiple=True,
    required=True,
    help="An adapter's folder, and a file of traces that were held out. May be given again.",
    metavar="RUN=FILE",
)
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="Prompts of all adapters.")
@click.option("--tokens", type=click.IntRange(1), default=32, show_default=True, help="Of an answer that is a text.")
@click.option("--margin", type=click.FloatRange(0), default=0.02, show_default=True, help="Of a tie, in nats.")
@click.option("--least", type=click.FloatRange(0, 1), default=0.95, show_default=True, help="Share for a pass.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="The figures as JSON, too.", metavar="FILE")
def main(
    model: str,
    adapters: Sequence[tuple[str, Path]],
    limit: int,
    tokens: int,
    margin: float,
    least: float,
    dtype: str,
    out: Path | None,
) -> None:
    """Compare a vLLM server's greedy answers with peft's, adapter by adapter; exit 1 below the share."""
    try:
        folder, runs = _folder(model), {Path(run).name: Path(run) for run, _ in adapters}
        prompts = _prompts(adapters, runs, limit, tokens)
        ours, weigh = _in_process(folder, runs, prompts, dtype)
        theirs, seconds = _served(folder, runs, prompts, dtype)
        found = [_same(name, prompts[name], ours[name], theirs[name], weigh[name], margin) for name in prompts]
    except LocalmemError as error:
        note(f"Error: {error}")
        sys.exit(2)
    report = _report(found, prompts, ours, theirs, seconds, dtype, margin)
    if out:
        out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print_json(report)
    sys.exit(0 if all(one.share >= least for one in found if one.name != BASE) else 1)


def _folder(model: str) -> Path:
    from localmem.cli.finetune.training_options import base_folder

    return base_folder(model)


def _prompts(
    adapters: Sequence[tuple[str, Path]], runs: Mapping[str, Path], limit: int, tokens: int
) -> "dict[str, list[Prompt]]":
    """Those of each adapter, under its name; the base model gets as many, of all of them."""
    from finetune.grading import prompt_of
    from finetune.traces.trace import read_traces

    if len(runs) < len(adapters):
        raise BadInput(f"two of the adapters are called alike ({', '.join(runs)}); rename a folder")
    found: dict[str, list[Prompt]] = {}
    for run, path in adapters:
        traces = read_traces(path)[: limit // len(adapters)]
        if not traces:
            raise BadInput(f"{path} holds no trace; give held-out ones")
        greedy = [replace(prompt_of(trace), temperature=0.0, seed=None) for trace in traces]
        found[Path(run).name] = [
            replace(prompt, name=Path(run).name, max_tokens=min(prompt.max_tokens, tokens))
            if _is_text(prompt)
            else replace(prompt, name=Path(run).name)
            for prompt in greedy
        ]
    mixed = [one for row in zip_longest(*found.values()) for one in row if one]
    return {BASE: [replace(prompt, name=BASE) for prompt in mixed[: limit // len(adapters)]], **found}


def _is_text(prompt: "Prompt") -> bool:
    from localmem.types import FreeText

    return isinstance(prompt.format, FreeText)


def _in_process(
    folder: Path, runs: Mapping[str, Path], prompts: Prompts, dtype: str
) -> "tuple[dict[str, list[Completion]], dict[str, Margin]]":
    """The answers of transformers and peft, and what weighs two of them."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from finetune.engine_parity import Margin, Weighed
    from localmem.llm.tokenizer import ChatTokenizer
    from localmem.llm.transformers import TransformersLLM

    llm = TransformersLLM(folder, name=BASE, device="cpu", dtype=dtype, adapters=runs)
    answers = {}
    for name, asked in prompts.items():
        note(f"{name}: {len(asked)} prompts in process")
        answers[name] = _all(llm, asked)
    chat, weigh = ChatTokenizer(folder), dict[str, Margin]()
    for name in prompts:
        plain = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, local_files_only=True)
        model = PeftModel.from_pretrained(plain, str(runs[name])) if name in runs else plain
        weigh[name] = Weighed(model.eval(), chat)
    return answers, weigh


def _served(
    folder: Path, runs: Mapping[str, Path], prompts: Prompts, dtype: str
) -> "tuple[dict[str, list[Completion]], float]":
    """The server's answers to all prompts, mixed, and the seconds that they took together."""
    with _server(folder, dtype) as llm:
        for name, run in runs.items():
            llm.load_adapter(name, run)
        mixed = [one for row in zip_longest(*prompts.values()) for one in row if one is not None]
        note(f"vLLM: {len(mixed)} prompts for {', '.join(prompts)} at once")
        began = perf_counter()
        answers = _all(llm, mixed)
        seconds = perf_counter() - began
    return {
        name: [answer for prompt, answer in zip(mixed, answers, strict=True) if prompt.name == name] for name in prompts
    }, seconds


def _all(llm: "LLM", prompts: "Sequence[Prompt]") -> "list[Completion]":
    """An answer to each; one that was cut off within its JSON is an empty one, on either side."""
    from localmem.errors import PartialFailure
    from localmem.types import Completion

    try:
        return llm.generate(prompts)
    except PartialFailure as failure:
        return [one if isinstance(one, Completion) else Completion("", "length") for one in failure.results]


@contextmanager
def _server(folder: Path, dtype: str) -> "Iterator[VllmLLM]":
    from localmem.llm.vllm.llm import VllmLLM
    from localmem.llm.vllm.vllm_server import VllmServer, VllmSettings

    settings = VllmSettings(dtype=dtype, lora=True, context_length=4096)
    with (
        TemporaryDirectory(prefix="localmem-check-") as scratch,
        VllmServer(folder, name=BASE, log=Path(scratch) / "vllm.log", settings=settings) as server,
    ):
        yield VllmLLM(server.url, name=BASE, tokenizer=folder, api_key=server.api_key, server=server, concurrency=32)


def _same(
    name: str,
    prompts: "Sequence[Prompt]",
    ours: "Sequence[Completion]",
    theirs: "Sequence[Completion]",
    weigh: "Margin",
    margin: float,
) -> "Sameness":
    from finetune.engine_parity import sameness

    return sameness(name, prompts, ours, theirs, weigh, margin)


def _report(
    found: "Sequence[Sameness]",
    prompts: Prompts,
    ours: Answers,
    theirs: Answers,
    seconds: float,
    dtype: str,
    margin: float,
) -> dict[str, object]:
    from finetune.engine_parity import apart
    from localmem.reporting.provenance import machine, versions

    return {
        "models": [one.row() for one in found],
        "margin_nats": margin,
        "choices_apart_nats": {name: apart(ours[name], theirs[name]) for name in prompts},
        "dtype": dtype,
        "prompts_at_once": sum(map(len, prompts.values())),
        "seconds_on_vllm": round(seconds, 1),
        "other_than_base": _other_than_base(prompts, ours),
        "choices": sum(not _is_text(prompt) for prompt in chain(*prompts.values())),
        "machine": machine(Path()),
        "versions": versions(),
    }


def _other_than_base(prompts: Prompts, ours: Answers) -> dict[str, str]:
    """Of the prompts that the base model was asked, too, how many an adapter answers otherwise."""
    base = {prompt.messages: answer.text for prompt, answer in zip(prompts[BASE], ours[BASE], strict=True)}
    found = {}
    for name in (name for name in prompts if name != BASE):
        pairs = zip(prompts[name], ours[name], strict=True)
        both = [(answer.text, base[prompt.messages]) for prompt, answer in pairs if prompt.messages in base]
        found[name] = f"{sum(one != other for one, other in both)} of {len(both)}"
    return found


if __name__ == "__main__":
    main()
