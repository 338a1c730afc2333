"""The weights behind a classifier of text pairs: an encoder with a head, or a T5 that answers with one digit.

Each reads a batch of tokenised pairs in one pass. Knows no threads and no order of batches; that is `pair_model`'s.

T5 reads and answers as Keep Me Updated has it (appendix B.4): "sentence 1: … sentence 2: …" in, one digit out. It is
never left to write freely: one step of the decoder is made, and of its logits only those of the allowed digits count.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from localmem.errors import BadInput, MissingExtra, ModelMissing
from localmem.files import read_json
from localmem.llm.device import fastest_cpu_dtype, resolve_device, resolve_dtype
from localmem.weights.loading import no_progress_bar

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Pairs = Sequence[tuple[str, str]]
Probabilities = NDArray[np.float32]
Coded = dict[str, list[int]]  # one pair: the token ids and what else the tokenizer gives
One = TypeVar("One")
Made = TypeVar("Made")

NOTES = "localmem"  # the config's field for what whoever trained a model tells whoever uses it
LABELS = "labels"  # the note that holds a T5's labels, in the order of their digits
SPLIT_LAYERS = "apart"  # the note that says how many layers of a BERT read the two texts of a pair apart

_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_T5_WINDOW = 512  # T5's positions are relative; this is what it was trained on


def config_of(folder: Path) -> Mapping[str, object]:
    """The folder's config.json. Raises ModelMissing where there is none, BadInput where it cannot be read."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelMissing(f"there is no pair classifier in {folder}; train one with `localmem finetune`")
    return read_json(path, TypeAdapter(dict[str, object]), "the folder is damaged: train the classifier again")


def is_t5(config: Mapping[str, object]) -> bool:
    """Whether a model of the T5 family (T5, flan-t5, mT5) stands behind this config."""
    return config.get("model_type") in ("t5", "mt5", "umt5")


def labels_of(config: Mapping[str, object]) -> tuple[str, ...]:
    """The labels that the model tells apart, in its order; none where the config names none."""
    notes, named = config.get(NOTES), config.get("id2label")
    if is_t5(config):
        told = notes.get(LABELS) if isinstance(notes, dict) else None
        return tuple(map(str, told)) if isinstance(told, list) else ()
    return tuple(str(named[number]) for number in sorted(named, key=int)) if isinstance(named, dict) else ()


def by_length(
    items: Sequence[One], length: Callable[[One], int], size: int, call: Callable[[Sequence[One]], list[Made]]
) -> list[Made]:
    """What `call` makes of the items, in their order. Batches hold items of like length, so there is little padding."""
    order = sorted(range(len(items)), key=lambda index: length(items[index]))
    found: dict[int, Made] = {}
    for start in range(0, len(order), size):
        part = order[start : start + size]
        found.update(zip(part, call([items[index] for index in part]), strict=True))
    return [found[index] for index in range(len(items))]


def split_layers_of(config: Mapping[str, object]) -> int:
    """How many layers of the model read the two texts of a pair apart; 0 for a model as it is."""
    notes = config.get(NOTES)
    apart = notes.get(SPLIT_LAYERS) if isinstance(notes, dict) else None
    return apart if isinstance(apart, int) else 0


def t5_input(first: str, second: str) -> str:
    """A pair as T5 reads it (appendix B.4)."""
    return f"sentence 1: {first} sentence 2: {second}"


def digit_tokens(tokenizer: "PreTrainedTokenizerBase", number: int) -> list[int]:
    """The token of each of the digits 0 to number - 1. Raises BadInput where the vocabulary cannot tell them apart."""
    ids = [tokenizer(str(digit), add_special_tokens=False)["input_ids"][-1] for digit in range(number)]
    if len(set(ids)) < number or tokenizer.unk_token_id in ids:
        raise BadInput(f"the tokenizer has no token for each digit from 0 to {number - 1}; take another T5")
    return ids


class PairWeights(ABC):
    """A model and its tokenizer. `labels` are those of a row's columns, `notes` what the training left behind."""

    def __init__(self, folder: Path, device: str) -> None:
        config = config_of(folder)
        try:
            from transformers import AutoTokenizer

            where = resolve_device(device)
        except ImportError as error:
            raise MissingExtra(
                f"a trained classifier needs {error.name!r}; run `pip install 'localmem[cpu]'`"
            ) from error
        dtype = resolve_dtype("auto", where, cpu=fastest_cpu_dtype(), gpu="bfloat16")
        try:
            with no_progress_bar():
                model = self._load(folder, dtype)
            self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(folder), **_LOCAL)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(f"{folder} holds no pair classifier: {reason}") from error
        self._model = model.eval().to(where)
        self.on_cpu = where == "cpu"
        notes = config.get(NOTES)
        self.labels = labels_of(config)
        self.notes: Mapping[str, object] = notes if isinstance(notes, dict) else {}

    @abstractmethod
    def _load(self, folder: Path, dtype: "torch.dtype") -> "PreTrainedModel":
        """The model; an error of the library where the folder holds none."""

    @abstractmethod
    def code(self, pairs: Pairs) -> list[Coded]:
        """Each pair's tokens, cut to the model's window."""

    @abstractmethod
    def _logits(self, batch: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """(n, labels), one pass."""

    def read(self, pairs: Pairs, size: int) -> list[Probabilities]:
        """The probability of each label, in batches of `size` pairs of like length."""
        return by_length(self.code(pairs), lambda one: len(one["input_ids"]), size, self.rows)

    def rows(self, coded: Sequence[Coded]) -> list[Probabilities]:
        """The probability of each label; a batch of tokenised pairs, padded to the longest."""
        import torch

        batch = self._tokenizer.pad({key: [one[key] for one in coded] for key in coded[0]}, return_tensors="pt")
        with torch.inference_mode():
            logits = self._logits(batch.to(self._model.device))
        rows: NDArray[np.float32] = logits.float().softmax(dim=-1).cpu().numpy()
        return list(rows)

    def _each(self, coded: Mapping[str, list[list[int]]]) -> list[Coded]:
        return [dict(zip(coded, values, strict=True)) for values in zip(*coded.values(), strict=True)]


class EncoderWeights(PairWeights):
    """Any BERT-like model with a head; the two texts are the two parts of its input."""

    def _load(self, folder: Path, dtype: "torch.dtype") -> "PreTrainedModel":
        from transformers import AutoModelForSequenceClassification

        model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(str(folder), dtype=dtype, **_LOCAL)
        self._positions = int(model.config.max_position_embeddings)
        return model

    def code(self, pairs: Pairs) -> list[Coded]:
        return self._coded(pairs)

    def _coded(self, pairs: Pairs, **more: bool) -> list[Coded]:
        first, second = map(list, zip(*pairs, strict=True))
        window = min(self._tokenizer.model_max_length, self._positions)
        return self._each(dict(self._tokenizer(first, second, truncation=True, max_length=window, **more)))

    def _logits(self, batch: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        logits: torch.Tensor = self._model(**batch).logits
        return logits


class T5Weights(PairWeights):
    """A T5 that `localmem finetune operations` trained; a digit stands for each of its labels."""

    def __init__(self, folder: Path, device: str) -> None:
        super().__init__(folder, device)
        if not self.labels:
            raise BadInput(f"{folder} is a T5 that tells no labels yet; train it with `localmem finetune operations`")
        self._digits = digit_tokens(self._tokenizer, len(self.labels))

    def _load(self, folder: Path, dtype: "torch.dtype") -> "PreTrainedModel":
        from transformers import AutoModelForSeq2SeqLM

        model: PreTrainedModel = AutoModelForSeq2SeqLM.from_pretrained(str(folder), dtype=dtype, **_LOCAL)
        return model

    def code(self, pairs: Pairs) -> list[Coded]:
        asked = [t5_input(first, second) for first, second in pairs]
        return self._each(dict(self._tokenizer(asked, truncation=True, max_length=_T5_WINDOW)))

    def _logits(self, batch: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        import torch

        start = torch.full((len(batch["input_ids"]), 1), self._model.config.decoder_start_token_id)
        made = self._model(**batch, decoder_input_ids=start.to(self._model.device), use_cache=False)
        logits: torch.Tensor = made.logits[:, 0, self._digits]
        return logits
