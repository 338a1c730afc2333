#!/usr/bin/env python3
"""Checks that a vLLM server gives the answers that peft gives in process, with the base model and adapters at once.

Starts a vLLM server, loads the adapters while it runs, sends it held-out prompts for the base model and for each
adapter mixed together, decodes greedily, and compares with transformers and peft in this process.
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
    from finetune.engine_parity import Margin, Parity
    from localmem.llm.base import LLM
    from localmem.llm.vllm.llm import VllmLLM
    from localmem.types import Completion, Prompt

BASE = "base"

Prompts = Mapping[str, Sequence["Prompt"]]  # by the name of the adapter, or BASE
Answers = Mapping[str, Sequence["Completion"]]


@click.command()
@click.option("--base", "model", required=True, help="Base model, by name or folder.", metavar="M")
@click.option(
    "--adapter",
    "adapters",
    type=DatasetFile(),
    multiple=True,
    required=True,
    help="Adapter folder and a file of held-out traces. Repeatable.",
    metavar="RUN=FILE",
)
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="Prompts for all adapters.")
@click.option("--tokens", type=click.IntRange(1), default=32, show_default=True, help="Tokens of a text answer.")
@click.option("--margin", type=click.FloatRange(0), default=0.02, show_default=True, help="Margin of a tie, in nats.")
@click.option(
    "--least", type=click.FloatRange(0, 1), default=0.95, show_default=True, help="Share of equal answers to pass."
)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="JSON file for the figures.", metavar="FILE")
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
    """Compare a vLLM server's greedy answers with peft's for each adapter; exit 1 if too few are equal."""
    from finetune.trainers.training import base_folder

    try:
        folder, runs = base_folder(model), {Path(run).name: Path(run) for run, _ in adapters}
        prompts = _read_prompts(adapters, runs, limit, tokens)
        reference, margins = _answer_in_process(folder, runs, prompts, dtype)
        served, seconds = _answer_by_server(folder, runs, prompts, dtype)
        parities = _compare(prompts, reference, served, margins, margin)
    except LocalmemError as error:
        note(f"Error: {error}")
        sys.exit(2)
    report = _report(parities, prompts, reference, served)
    report |= {"margin_nats": margin, "dtype": dtype, "seconds_on_vllm": round(seconds, 1)}
    if out:
        out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print_json(report)
    sys.exit(0 if all(parity.share >= least for parity in parities if parity.name != BASE) else 1)


def _read_prompts(
    adapters: Sequence[tuple[str, Path]], runs: Mapping[str, Path], limit: int, tokens: int
) -> "dict[str, list[Prompt]]":
    """The prompts of each adapter under its name; the base model gets as many of all of them."""
    from finetune.traces.trace import read_traces

    if len(runs) < len(adapters):
        raise BadInput(f"two adapters have the same name ({', '.join(runs)}); rename a folder")
    prompts: dict[str, list[Prompt]] = {}
    for run, path in adapters:
        traces = read_traces(path)[: limit // len(adapters)]
        if not traces:
            raise BadInput(f"{path} has no traces; give held-out ones")
        name = Path(run).name
        greedy = [replace(trace.prompt(), name=name, temperature=0.0, seed=None) for trace in traces]
        prompts[name] = [
            replace(prompt, max_tokens=min(prompt.max_tokens, tokens)) if _is_text(prompt) else prompt
            for prompt in greedy
        ]
    mixed = _interleave(prompts)[: limit // len(adapters)]
    return {BASE: [replace(prompt, name=BASE) for prompt in mixed], **prompts}


def _interleave(prompts: Prompts) -> "list[Prompt]":
    return [prompt for row in zip_longest(*prompts.values()) for prompt in row if prompt is not None]


def _is_text(prompt: "Prompt") -> bool:
    from localmem.types import FreeText

    return isinstance(prompt.format, FreeText)


def _answer_in_process(
    folder: Path, runs: Mapping[str, Path], prompts: Prompts, dtype: str
) -> "tuple[dict[str, list[Completion]], dict[str, Margin]]":
    """The answers of transformers and peft, and functions that compute the margin between two answers."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from finetune.engine_parity import Margin, ModelMargin
    from localmem.llm.tokenizer import ChatTokenizer
    from localmem.llm.transformers import TransformersLLM

    llm = TransformersLLM(folder, name=BASE, device="cpu", dtype=dtype, adapters=runs)
    answers = {}
    for name, own in prompts.items():
        note(f"{name}: {len(own)} prompts in process")
        answers[name] = _generate(llm, own)
    chat, margins = ChatTokenizer(folder), dict[str, Margin]()
    for name in prompts:
        plain = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, local_files_only=True)
        model = PeftModel.from_pretrained(plain, str(runs[name])) if name in runs else plain
        margins[name] = ModelMargin(model.eval(), chat)
    return answers, margins


def _answer_by_server(
    folder: Path, runs: Mapping[str, Path], prompts: Prompts, dtype: str
) -> "tuple[dict[str, list[Completion]], float]":
    """The server's answers to all prompts, sent interleaved, and the seconds that they took together."""
    with _start_server(folder, dtype) as llm:
        for name, run in runs.items():
            llm.load_adapter(name, run)
        mixed = _interleave(prompts)
        note(f"vLLM: {len(mixed)} prompts for {', '.join(prompts)} at once")
        start = perf_counter()
        answers = _generate(llm, mixed)
        seconds = perf_counter() - start
    by_name = {
        name: [answer for prompt, answer in zip(mixed, answers, strict=True) if prompt.name == name] for name in prompts
    }
    return by_name, seconds


def _generate(llm: "LLM", prompts: "Sequence[Prompt]") -> "list[Completion]":
    """An answer to each prompt; one that was truncated within its JSON is empty on either side."""
    from localmem.errors import PartialFailure
    from localmem.types import Completion

    try:
        return llm.generate(prompts)
    except PartialFailure as failure:
        return [result if isinstance(result, Completion) else Completion("", "length") for result in failure.results]


@contextmanager
def _start_server(folder: Path, dtype: str) -> "Iterator[VllmLLM]":
    from localmem.llm.vllm.llm import VllmLLM
    from localmem.llm.vllm.vllm_server import VllmServer, VllmSettings

    settings = VllmSettings(dtype=dtype, lora=True, context_length=4096)
    with (
        TemporaryDirectory(prefix="localmem-check-") as scratch,
        VllmServer(folder, name=BASE, log=Path(scratch) / "vllm.log", settings=settings) as server,
    ):
        yield VllmLLM(server.url, name=BASE, tokenizer=folder, api_key=server.api_key, server=server, concurrency=32)


def _compare(
    prompts: Prompts, reference: Answers, served: Answers, margins: "Mapping[str, Margin]", margin: float
) -> "list[Parity]":
    from finetune.engine_parity import compare_engines

    return [
        compare_engines(name, own, reference[name], served[name], margins[name], margin)
        for name, own in prompts.items()
    ]


def _report(parities: "Sequence[Parity]", prompts: Prompts, reference: Answers, served: Answers) -> dict[str, object]:
    from finetune.engine_parity import largest_choice_difference
    from localmem.reporting.provenance import machine, versions

    return {
        "models": [parity.row() for parity in parities],
        "largest_choice_difference_nats": {
            name: largest_choice_difference(reference[name], served[name]) for name in prompts
        },
        "prompts_at_once": sum(map(len, prompts.values())),
        "different_from_base": _count_different_from_base(prompts, reference),
        "choices": sum(not _is_text(prompt) for prompt in chain(*prompts.values())),
        "machine": machine(Path()),
        "versions": versions(),
    }


def _count_different_from_base(prompts: Prompts, reference: Answers) -> dict[str, str]:
    """For each adapter, how many of the prompts that the base model also got have a different answer."""
    base = {prompt.messages: answer.text for prompt, answer in zip(prompts[BASE], reference[BASE], strict=True)}
    counts = {}
    for name in (name for name in prompts if name != BASE):
        pairs = zip(prompts[name], reference[name], strict=True)
        both = [(answer.text, base[prompt.messages]) for prompt, answer in pairs if prompt.messages in base]
        counts[name] = f"{sum(own != plain for own, plain in both)} of {len(both)}"
    return counts


if __name__ == "__main__":
    main()
