#!/usr/bin/env python3
"""Checks that a vLLM server gives the same answers as peft in process, with the base model and adapters together.

Starts its own vLLM server, loads the adapters while it runs, sends it held-out prompts for the base model and for each
adapter mixed together, decodes greedily, and compares with transformers and peft in this process.

Rounding differs between engines, so if the two most likely tokens are within a margin of each other, either is right.
The engine in this process, the reference, measures the margin: the difference of the two tokens' log-probabilities at
the point where the answers diverge.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

try:
    import click

    from localmem.cli.options import DatasetFile, note, print_json
    from localmem.errors import BadInput, LocalmemError
    from localmem.types import Choice, Completion, FreeText, Prompt
except ImportError as error:
    sys.exit(f"check_adapters: {error}; run scripts/setup, then .venv/bin/python scripts/check_adapters.py")

if TYPE_CHECKING:
    from torch.nn import Module

    from localmem.llm.base import LLM
    from localmem.llm.remote.remote_llm import RemoteLLM
    from localmem.llm.tokenizer import ChatTokenizer

BASE = "base"

Prompts = Mapping[str, Sequence[Prompt]]  # by the name of the model that answers
Answers = Mapping[str, Sequence[Completion]]
Margin = Callable[[Prompt, str, str], float]  # between two answers to a prompt, in nats


@click.command()
@click.option("--base", "model", required=True, help="Base model: a name or a folder.", metavar="MODEL")
@click.option(
    "--adapter",
    "adapters",
    type=DatasetFile(),
    multiple=True,
    required=True,
    help="An adapter's folder and a file of held-out traces. Repeatable.",
    metavar="RUN=FILE",
)
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, help="Prompts of all adapters.")
@click.option("--tokens", type=click.IntRange(1), default=32, show_default=True, help="Longest free-text answer.")
@click.option("--margin", type=click.FloatRange(0), default=0.02, show_default=True, help="Margin of a tie, in nats.")
@click.option("--min-share", type=click.FloatRange(0, 1), default=0.95, show_default=True, help="Share to pass.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), help="Also write the figures as JSON.", metavar="FILE")
def main(
    model: str,
    adapters: Sequence[tuple[str, Path]],
    limit: int,
    tokens: int,
    margin: float,
    min_share: float,
    dtype: str,
    out: Path | None,
) -> None:
    """Compare a vLLM server's greedy answers with peft's, adapter by adapter; exit 1 below the share."""
    from finetune.trainers.training import base_folder
    from localmem.files import write_json

    try:
        folder, runs = base_folder(model), {Path(run).name: Path(run) for run, _ in adapters}
        prompts = _read_prompts(adapters, runs, limit, tokens)
        reference, margins = _answer_in_process(folder, runs, prompts, dtype)
        served, seconds = _answer_on_server(folder, runs, prompts, dtype)
        parities = [
            compare_engines(name, prompts[name], reference[name], served[name], margins[name], margin)
            for name in prompts
        ]
        report = _report(parities, prompts, reference, served, seconds, dtype, margin)
        if out:
            write_json(out, report)
    except LocalmemError as error:
        note(f"Error: {error}")
        sys.exit(2)
    print_json(report)
    sys.exit(0 if all(parity.share >= min_share for parity in parities if parity.name != BASE) else 1)


def _read_prompts(
    adapters: Sequence[tuple[str, Path]], runs: Mapping[str, Path], limit: int, tokens: int
) -> dict[str, list[Prompt]]:
    """The prompts of each adapter, under its name; the base model gets as many, from all of them."""
    from finetune.traces.trace import read_traces

    if len(runs) < len(adapters):
        raise BadInput(f"two of the adapters have the same name ({', '.join(runs)}); rename a folder")
    prompts: dict[str, list[Prompt]] = {}
    for run, path in adapters:
        traces = read_traces(path)[: limit // len(adapters)]
        if not traces:
            raise BadInput(f"{path} holds no trace; use held-out traces")
        prompts[Path(run).name] = [_greedy(trace.prompt(), Path(run).name, tokens) for trace in traces]
    mixed = _interleave(prompts)
    return {BASE: [replace(prompt, name=BASE) for prompt in mixed[: limit // len(adapters)]], **prompts}


def _greedy(prompt: Prompt, name: str, tokens: int) -> Prompt:
    limit = min(prompt.max_tokens, tokens) if _is_text(prompt) else prompt.max_tokens
    return replace(prompt, name=name, max_tokens=limit, temperature=0.0, seed=None)


def _interleave(prompts: Prompts) -> list[Prompt]:
    return [prompt for row in zip_longest(*prompts.values()) for prompt in row if prompt is not None]


def _is_text(prompt: Prompt) -> bool:
    return isinstance(prompt.format, FreeText)


def _answer_in_process(
    folder: Path, runs: Mapping[str, Path], prompts: Prompts, dtype: str
) -> tuple[dict[str, list[Completion]], dict[str, Margin]]:
    """The answers of transformers and peft, and functions that measure the margin between two answers."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

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


def _answer_on_server(
    folder: Path, runs: Mapping[str, Path], prompts: Prompts, dtype: str
) -> tuple[dict[str, list[Completion]], float]:
    """The server's answers to all prompts, mixed, and the seconds that they took together."""
    with _server(folder, dtype) as llm:
        for name, run in runs.items():
            llm.load_adapter(name, run)
        mixed = _interleave(prompts)
        note(f"vLLM: {len(mixed)} prompts for {', '.join(prompts)} together")
        start = perf_counter()
        answers = _generate(llm, mixed)
        seconds = perf_counter() - start
    return {
        name: [answer for prompt, answer in zip(mixed, answers, strict=True) if prompt.name == name] for name in prompts
    }, seconds


def _generate(llm: "LLM", prompts: Sequence[Prompt]) -> list[Completion]:
    """An answer to each prompt; on both engines, one that was cut off within its JSON counts as empty."""
    from localmem.errors import PartialFailure

    try:
        return llm.generate(prompts)
    except PartialFailure as failure:
        return [result if isinstance(result, Completion) else Completion("", "length") for result in failure.results]


@contextmanager
def _server(folder: Path, dtype: str) -> "Iterator[RemoteLLM]":
    from localmem.llm.remote.remote_llm import RemoteLLM
    from localmem.llm.vllm.vllm_server import VllmServer, VllmSettings

    settings = VllmSettings(dtype=dtype, lora=True, context_length=4096)
    with (
        TemporaryDirectory(prefix="localmem-check-") as scratch,
        VllmServer(folder, name=BASE, log=Path(scratch) / "vllm.log", settings=settings) as server,
    ):
        yield RemoteLLM(server.url, name=BASE, tokenizer=folder, api_key=server.api_key, server=server, concurrency=32)


def _report(
    parities: "Sequence[Parity]",
    prompts: Prompts,
    reference: Answers,
    served: Answers,
    seconds: float,
    dtype: str,
    margin: float,
) -> dict[str, object]:
    from localmem.reporting.provenance import machine, versions

    return {
        "models": [parity.row() for parity in parities],
        "margin_nats": margin,
        "choices_apart_nats": {name: largest_choice_difference(reference[name], served[name]) for name in prompts},
        "dtype": dtype,
        "prompts_together": sum(map(len, prompts.values())),
        "seconds_on_vllm": round(seconds, 1),
        "other_than_base": _count_changed(prompts, reference),
        "choices": sum(not _is_text(prompt) for prompt in chain(*prompts.values())),
        "machine": machine(Path()),
        "versions": versions(),
    }


def _count_changed(prompts: Prompts, answers: Answers) -> dict[str, str]:
    """Of the prompts that the base model answered, too, how many an adapter answers differently."""
    base = {prompt.messages: answer.text for prompt, answer in zip(prompts[BASE], answers[BASE], strict=True)}
    changed = {}
    for name in (name for name in prompts if name != BASE):
        pairs = zip(prompts[name], answers[name], strict=True)
        both = [(answer.text, base[prompt.messages]) for prompt, answer in pairs if prompt.messages in base]
        changed[name] = f"{sum(own != plain for own, plain in both)} of {len(both)}"
    return changed


@dataclass(frozen=True, slots=True)
class Parity:
    """How many answers to `prompts` prompts are equal, how many diverge at a tie, and the widest divergence."""

    name: str
    prompts: int
    equal: int
    ties: int
    widest: float

    @property
    def share(self) -> float:
        """Share of answers that are equal or diverge at a tie."""
        return (self.equal + self.ties) / self.prompts

    def row(self) -> dict[str, object]:
        """The figures by column of a table."""
        return {
            "model": self.name,
            "prompts": self.prompts,
            "equal": self.equal,
            "ties": self.ties,
            "share equal": self.equal / self.prompts,
            "share with ties": self.share,
            "widest margin": self.widest,
        }


def compare_engines(
    name: str,
    prompts: Sequence[Prompt],
    reference: Sequence[Completion],
    other: Sequence[Completion],
    margin_of: Margin,
    margin: float,
) -> Parity:
    """Compare another engine's answers with the reference's. `widest` is the widest margin of a divergence."""
    margins = [
        margin_between(prompt, first, second, margin_of)
        for prompt, first, second in zip(prompts, reference, other, strict=True)
        if first.text != second.text
    ]
    ties = sum(value <= margin for value in margins)
    return Parity(name, len(prompts), len(prompts) - len(margins), ties, max(margins, default=0.0))


def largest_choice_difference(reference: Sequence[Completion], other: Sequence[Completion]) -> float | None:
    """The largest difference of the log-probabilities of the option that the reference chose; None without choices."""
    differences = [
        abs(first.choices[first.text] - second.choices[first.text])
        for first, second in zip(reference, other, strict=True)
        if first.choices and second.choices and first.text in first.choices and first.text in second.choices
    ]
    return max(differences, default=None)


def margin_between(prompt: Prompt, reference: Completion, other: Completion, margin_of: Margin) -> float:
    """How much more likely the reference's answer was than the other's, at the point of divergence."""
    if isinstance(prompt.format, Choice) and reference.choices:
        first, second = (reference.choices.get(answer.text, -inf) for answer in (reference, other))
        return first - second
    return margin_of(prompt, reference.text, other.text)


class ModelMargin:
    """Margins by a causal language model: a forward pass of transformers, or of peft around it."""

    def __init__(self, model: "Module", chat: "ChatTokenizer") -> None:
        self._model, self._chat = model, chat

    def __call__(self, prompt: Prompt, reference: str, other: str) -> float:
        import torch

        first, second = (self._token_ids(text) for text in (reference, other))
        common = next(place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        ids = [*self._chat.encode(prompt.messages, {}), *first[:common]]
        with torch.inference_mode():
            logits = self._model(input_ids=torch.tensor([ids])).logits[0, -1].float()
        scores = logits.log_softmax(-1)
        return float(scores[first[common]] - scores[second[common]])

    def _token_ids(self, text: str) -> list[int]:
        """With the token that ends an answer, because one answer may be a prefix of the other."""
        ids: list[int] = self._chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        return [*ids, int(self._chat.tokenizer.eos_token_id)]


if __name__ == "__main__":
    main()
