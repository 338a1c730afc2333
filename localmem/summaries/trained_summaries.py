"""Summaries by a trained T5 or BART, in place of the backbone: ReBot's and SumMem-MSC's summarisers, as in the papers.

A wrapper around the LLM that a system gets. It answers every prompt from its inputs alone, for such a model takes no
instructions: the dialogue, or the message before and the one that is summarised. What is longer than its window is
summarised in parts. Weights load when first needed.
"""

import json
import threading
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.batching import map_by_length
from localmem.errors import BadInput, requires
from localmem.llm.base import LLM
from localmem.llm.device import no_progress_bar, one_at_a_time, resolve_device
from localmem.llm.wrappers import Wrapper
from localmem.text.dialogue import pack
from localmem.types import Completion, JsonSchema, Prompt, Usage

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_BATCH = 8
_WINDOW = 1024  # of BART; T5's positions are relative
_NO_SUMMARY = "__no__persona"  # begins what ParlAI's summariser of MSC writes for a message that tells nothing


class TrainedSummaries(Wrapper):
    """Answers with the model in a local folder. `find` returns the folder; its errors are raised at the first use."""

    def __init__(self, inner: LLM, find: Callable[[], Path]) -> None:
        super().__init__(inner)
        self._find = find
        self._lock = threading.Lock()
        self._weights: _Weights | None = None

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Each prompt's summary; an empty list of memories where a message tells nothing."""
        with self._lock:
            if self._weights is None:
                with one_at_a_time():
                    self._weights = _Weights(self._find())
            texts = [self._weights.split(_source(prompt)) for prompt in prompts]
            parts = [(prompt, text) for prompt, run in zip(prompts, texts, strict=True) for text in run]
            summaries = iter(map_by_length(self._weights.summarize, parts, lambda part: len(part[1]), _BATCH))
        return [_completion(prompt, [*islice(summaries, len(run))]) for prompt, run in zip(prompts, texts, strict=True)]


def _source(prompt: Prompt) -> str:
    """What is summarised."""
    inputs = prompt.inputs
    return inputs.get("dialogue") or "\n".join(filter(None, [inputs.get("before"), inputs.get("said")]))


class _Weights:
    """The model and its tokenizer."""

    def __init__(self, folder: Path) -> None:
        with requires("a trained summariser needs {}", "cpu"):
            target = resolve_device("auto")
            from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        local = {"local_files_only": True, "trust_remote_code": False}
        try:
            self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(folder), **local)
            with no_progress_bar():
                model: PreTrainedModel = AutoModelForSeq2SeqLM.from_pretrained(str(folder), **local)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(
                f"{folder} holds no T5 or BART: {reason}; give the folder of a trained summariser"
            ) from error
        self._model = model.eval().to(target)
        task = (getattr(model.config, "task_specific_params", None) or {}).get("summarization", {})
        self._prefix = str(task.get("prefix", ""))  # "summarize: " of a T5 that learned several tasks

    def split(self, text: str) -> list[str]:
        """A text in parts that the model's window holds, cut between lines."""
        lines = text.split("\n")
        sizes = [len(ids) + 1 for ids in self._tokenizer(lines, add_special_tokens=False)["input_ids"]]
        room = _WINDOW - len(self._tokenizer(self._prefix)["input_ids"])
        return ["\n".join(run) for run in pack(lines, sizes, room)]

    def summarize(self, parts: Sequence[tuple[Prompt, str]]) -> list[Completion]:
        """The summary of each text of a batch, as free text."""
        import torch

        texts = [self._prefix + text for _, text in parts]
        encoded = self._tokenizer(
            texts, return_tensors="pt", padding=True, truncation=True, max_length=_WINDOW, return_token_type_ids=False
        )
        longest = max(prompt.max_tokens for prompt, _ in parts)
        with torch.inference_mode():
            rows = self._model.generate(**encoded.to(self._model.device), max_new_tokens=longest)
        summaries = self._tokenizer.batch_decode(rows, skip_special_tokens=True)
        sizes = encoded["attention_mask"].sum(dim=1).tolist()
        return [Completion(text, usage=Usage(input=size)) for text, size in zip(summaries, sizes, strict=True)]


def _completion(prompt: Prompt, summaries: Sequence[Completion]) -> Completion:
    """The answer in the prompt's format."""
    texts = [summary.text.strip() for summary in summaries if not summary.text.lower().startswith(_NO_SUMMARY)]
    text = " ".join(filter(None, texts))
    if isinstance(prompt.format, JsonSchema):
        text = json.dumps({"memories": [text] if text else []}, ensure_ascii=False)
    return Completion(text, usage=Usage(input=sum(summary.usage.input for summary in summaries)))
