"""An LLM in this process, on Hugging Face transformers: the backbone where there is no vLLM server.

Prompts of many threads are decoded together; the threads that wait for answers do the steps in turns. Prompts become
rows here, and rows completions; the engine package does the steps.
"""

import ctypes
import logging
import sys
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localmem.batching import result_or_error, results_or_raise
from localmem.errors import LocalmemError, ModelMissing
from localmem.llm.adapters import Adapters, warn_of_changes
from localmem.llm.base import Ability, AnswerText, check, check_json, check_room, fit
from localmem.llm.choice_mass import ChoiceMass, steps_to_decide
from localmem.llm.device import fastest_cpu_dtype, one_at_a_time, resolve_device, resolve_dtype
from localmem.llm.engine.decoder import Decoder, Turns
from localmem.llm.engine.keyvalues import RowCache, use_row_attention
from localmem.llm.engine.row import KNOWN_FIELDS, Grammars, Row, Sampler
from localmem.llm.tokenizer import ChatTokenizer, Detokenizer, template_fields
from localmem.types import Choice, Completion, Prompt, Usage

if TYPE_CHECKING:
    from transformers import PreTrainedModel

logger = logging.getLogger(__name__)

# The tokens of finished prompts in the prefix cache, where a dialogue's next prompt finds what it repeats.
_PREFIX_TOKENS = 16384
_ARENA_MAX = -8  # the name of the setting in glibc's malloc.h


class TransformersLLM:
    """The model in `path`, loaded into this process.

    `device` is "auto" (a GPU where there is one), "cpu", "cuda" or another device of torch. `dtype` is "auto",
    "float32", "bfloat16" or "float16"; auto is bfloat16 where the device computes in it, which on a CPU halves the time
    of a step. In float32 the answer for a seed does not depend on the other prompts that are decoded; in bfloat16
    rounding can change it. `adapters` maps a prompt's name, or the part before its slash, to the folder of a peft
    adapter.
    """

    abilities: Collection[Ability] = frozenset({"prefill"})

    def __init__(
        self,
        path: Path,
        *,
        name: str,
        context_length: int | None = None,
        device: str = "auto",
        dtype: str = "auto",
        adapters: Mapping[str, str | Path] | None = None,
    ) -> None:
        self.name = name
        self._tokenizer = ChatTokenizer(path)
        _share_heap()
        with one_at_a_time():
            model = _load(path, resolve_device(device), dtype)
        text = model.config.get_text_config(decoder=True)
        self.context_length = context_length or int(text.max_position_embeddings)
        ends = _ends(model, self._tokenizer)
        self._ends = frozenset(ends)
        self._grammars = Grammars(self._tokenizer.tokenizer, int(text.vocab_size), ends)
        self._device = model.device
        self._adapters = Adapters(model)
        limit = 16 if self._device.type == "cpu" else 64
        self._decoder = Decoder(self._adapters, ends, limit=limit, prefix_tokens=_PREFIX_TOKENS)
        self._turns = Turns(self._decoder.step, self._decoder.prune)
        self._ignored_fields: set[str] = set()
        for prompt_name, folder in (adapters or {}).items():
            self.load_adapter(prompt_name, Path(folder))

    @property
    def active(self) -> int:
        """Prompts being decoded or waiting to be."""
        return self._decoder.rows

    def check(self, prompt: Prompt) -> None:
        check(prompt, self.abilities)
        check_room(prompt, self.context_length)
        self._grammars.constraint(prompt)

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        rows_or_errors = [result_or_error(self._row, prompt) for prompt in prompts]
        rows = [row for row in rows_or_errors if isinstance(row, Row)]
        try:
            self._decoder.add(rows)
            self._turns.work_until(lambda: all(row.finished for row in rows))
        finally:
            self._drop(rows)
        return results_or_raise([_result(row) if isinstance(row, Row) else row for row in rows_or_errors])

    def stream(self, prompt: Prompt) -> Generator[str, None, Completion]:
        row = self._row(prompt)
        try:
            self._decoder.add([row])
            while not row.finished or row.text.has_news:
                self._turns.work_until(lambda: row.finished or row.text.has_news)
                if row.text.has_news:
                    yield row.text.take()
        finally:
            self._drop([row])
        return results_or_raise([_result(row)])[0]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._tokenizer.count_tokens(texts)

    def load_adapter(self, name: str, path: Path) -> None:
        """Uses this adapter for prompts called `name`, or whose name begins with it and a slash."""
        warn_of_changes(path, self._tokenizer.template_sha256)
        with self._turns.exclusive():
            self._adapters.load(name, path)

    def _row(self, prompt: Prompt) -> Row:
        check(prompt, self.abilities)
        self._warn_of_ignored_fields(prompt)
        fields = template_fields(prompt.extra)
        choice = prompt.format if isinstance(prompt.format, Choice) else None
        limit = steps_to_decide(choice.options) if choice else prompt.max_tokens
        fitted, trimmed = fit(
            replace(prompt, max_tokens=limit, open_ended=prompt.open_ended and choice is None),
            self.context_length,
            lambda messages: len(self._tokenizer.encode(messages, fields, prompt.prefill)),
        )
        ids = self._tokenizer.encode(fitted.messages, fields, prompt.prefill)
        return Row(
            prompt=prompt,
            ids=ids,
            limit=fitted.max_tokens,
            ends=self._ends,
            sampler=Sampler(prompt, ids, self._device),
            pieces=Detokenizer(self._tokenizer.tokenizer),
            text=AnswerText(() if choice else prompt.stop),
            constraint=self._grammars.constraint(prompt),
            mass=ChoiceMass(choice.options) if choice else None,
            trimmed=trimmed,
        )

    def _warn_of_ignored_fields(self, prompt: Prompt) -> None:
        for field in sorted(set(prompt.extra) - KNOWN_FIELDS - self._ignored_fields):
            self._ignored_fields.add(field)
            logger.warning("prompt %r: an in-process model ignores the field %r", prompt.name, field)

    def _drop(self, rows: Sequence[Row]) -> None:
        for row in rows:
            row.dropped = not row.finished
        self._turns.tidy()


def _result(row: Row) -> Completion | LocalmemError:
    if row.error:
        return row.error
    text = row.text.text
    try:
        check_json(row.prompt, text, is_cut=row.cut)
    except LocalmemError as error:
        return error
    usage = Usage(input=len(row.ids), output=len(row.output), cached=row.cached)
    choices = row.mass.end(text) if row.mass else None
    return Completion(text, "length" if row.cut else "stop", usage, choices, row.trimmed, stop=row.text.stop)


def _share_heap() -> None:
    """One heap for all threads. They take turns at decoding, and with a heap for each, every heap keeps the memory that
    its turns freed: 11 GB in place of 4 after an evaluation of 8 threads on a 135M model. Needs the malloc of glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)


def _load(path: Path, device: str, dtype: str) -> "PreTrainedModel":
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as switches

    if not sys.stderr.isatty():
        switches.disable_progress_bar()
    if not (path / "config.json").is_file():
        raise ModelMissing(f"no model in {path}; get it with `localmem models pull`")
    numbers = resolve_dtype(dtype, device, cpu=fastest_cpu_dtype(), gpu="bfloat16")
    try:
        model = AutoModelForCausalLM.from_pretrained(str(path), dtype=numbers, local_files_only=True)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelMissing(
            f"the model in {path} cannot be read ({reason}); check it with `localmem models verify`"
        ) from error
    model = model.to(device).eval()
    if RowCache(model.config).joinable:
        use_row_attention(model)
    return model


def _ends(model: "PreTrainedModel", tokenizer: ChatTokenizer) -> list[int]:
    configured = model.generation_config.eos_token_id if model.generation_config else None
    ends = [configured] if isinstance(configured, int) else list(configured or [])
    own = tokenizer.tokenizer.eos_token_id
    return list(dict.fromkeys([*ends, own] if own is not None else ends))
