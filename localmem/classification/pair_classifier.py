"""A classifier of text pairs in a local folder, as `localmem finetune` writes it: an encoder with a head, or a T5.

It gives each pair the probability of each label, and does not depend on what the labels mean. The model's config holds,
under "localmem", the training's notes to the code that uses the model. As classifiers of sentence pairs, one kind of
model learned the four operations, the other natural language inference.

T5's input and output follow Keep Me Updated (appendix B.4): "sentence 1: … sentence 2: …" in, one digit out. It never
generates freely: the decoder runs one step, and only the logits of the allowed digits count. A T5 with a head
(T5ForSequenceClassification) has logits for the labels of its config instead.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from localmem.batching import Batched, map_by_length
from localmem.classification import OPERATIONS, Operation, OperationLabel, PairClassifier
from localmem.errors import BadInput, ModelMissing, requires
from localmem.files import read_json
from localmem.llm.device import fastest_cpu_dtype, no_progress_bar, one_at_a_time, resolve_device, resolve_dtype
from localmem.retrieval.encoder_part import BASE, load_part, notes_of, part_base

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


Pairs = Sequence[tuple[str, str]]
Probabilities = NDArray[np.float32]
Encoded = dict[str, list[int]]  # one pair: the token ids and the other outputs of the tokenizer

LABELS = "labels"  # the note that holds a T5's labels, in the order of their digits
SPLIT_LAYERS = "apart"  # the note with the number of a BERT's layers that process the two texts of a pair separately

_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_T5_WINDOW = 512  # T5's positions are relative; this is the length it was trained with


def config_of(folder: Path) -> Mapping[str, object]:
    """The folder's config.json. Raises ModelMissing if there is none, BadInput if it cannot be read."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelMissing(f"there is no pair classifier in {folder}; train one with `localmem finetune`")
    return read_json(path, TypeAdapter(dict[str, object]), "the folder is damaged: train the classifier again")


def is_t5(config: Mapping[str, object]) -> bool:
    """Whether this is the config of a model of the T5 family (T5, flan-t5, mT5)."""
    return config.get("model_type") in ("t5", "mt5", "umt5")


def has_head(config: Mapping[str, object]) -> bool:
    """Whether this is the config of a model with a head over its labels, and not of one that writes a digit."""
    kinds = config.get("architectures")
    return isinstance(kinds, list) and any(str(kind).endswith("ForSequenceClassification") for kind in kinds)


def labels_of(config: Mapping[str, object]) -> tuple[str, ...]:
    """The model's labels, in its order; none if the config names none."""
    if is_t5(config) and not has_head(config):
        labels = notes_of(config).get(LABELS)
        return tuple(map(str, labels)) if isinstance(labels, list) else ()
    names = config.get("id2label")
    return tuple(str(names[number]) for number in sorted(names, key=int)) if isinstance(names, dict) else ()


def base_of(config: Mapping[str, object]) -> str | None:
    """The encoder that the model is stored without; None for one that is stored whole."""
    base = notes_of(config).get(BASE)
    return None if base is None else str(base)


def split_layers_of(config: Mapping[str, object]) -> int:
    """The number of layers that process the two texts of a pair separately; 0 for an ordinary model."""
    layers = notes_of(config).get(SPLIT_LAYERS)
    return layers if isinstance(layers, int) else 0


def t5_input(first: str, second: str) -> str:
    """The input of T5 for a pair (appendix B.4)."""
    return f"sentence 1: {first} sentence 2: {second}"


def digit_tokens(tokenizer: "PreTrainedTokenizerBase", number: int) -> list[int]:
    """The token of each digit from 0 to number - 1. Raises BadInput if the vocabulary lacks one of them."""
    ids = [tokenizer(str(digit), add_special_tokens=False)["input_ids"][-1] for digit in range(number)]
    if len(set(ids)) < number or tokenizer.unk_token_id in ids:
        raise BadInput(f"the tokenizer has no token for each digit from 0 to {number - 1}; use another T5")
    return ids


class PairWeights(ABC):
    """A model and its tokenizer, for one thread. `labels` name a row's columns; `notes` are those of the training."""

    def __init__(self, folder: Path, device: str) -> None:
        config = config_of(folder)
        with requires("a trained classifier needs {}", "cpu"):
            from transformers import AutoTokenizer

            target = resolve_device(device)
        dtype = resolve_dtype("auto", target, cpu=fastest_cpu_dtype(), gpu="bfloat16")
        try:
            with no_progress_bar():
                model = self._load(folder, dtype)
            words = part_base(notes_of(config)) if BASE in notes_of(config) else folder
            self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(words), **_LOCAL)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(f"{folder} holds no pair classifier: {reason}") from error
        self._model = model.eval().to(target)
        self.on_cpu = target == "cpu"
        self.labels = labels_of(config)
        self.notes = notes_of(config)

    @abstractmethod
    def _load(self, folder: Path, dtype: "torch.dtype") -> "PreTrainedModel":
        """The model; raises the library's error if the folder holds none."""

    @abstractmethod
    def encode(self, pairs: Pairs) -> list[Encoded]:
        """Each pair's tokens, cut to the model's window."""

    def _logits(self, batch: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        """(n, labels) logits of a batch, in one pass."""
        logits: torch.Tensor = self._model(**batch).logits
        return logits

    def classify(self, pairs: Pairs, size: int) -> list[Probabilities]:
        """The probability of each label, in batches of `size` pairs of similar length."""
        return map_by_length(self._run, self.encode(pairs), lambda pair: len(pair["input_ids"]), size)

    def _run(self, pairs: Sequence[Encoded]) -> list[Probabilities]:
        import torch

        batch = self._tokenizer.pad({key: [pair[key] for pair in pairs] for key in pairs[0]}, return_tensors="pt")
        with torch.inference_mode():
            logits = self._logits(batch.to(self._model.device))
        rows: NDArray[np.float32] = logits.float().softmax(dim=-1).cpu().numpy()
        return list(rows)

    def _split(self, columns: Mapping[str, list[list[int]]]) -> list[Encoded]:
        """The tokenizer's columns as one dictionary for each pair."""
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


class EncoderWeights(PairWeights):
    """Any BERT-like model with a head; the two texts are the two parts of its input."""

    def _load(self, folder: Path, dtype: "torch.dtype") -> "PreTrainedModel":
        from transformers import AutoModelForSequenceClassification

        notes = notes_of(config_of(folder))
        model: PreTrainedModel = (
            load_part(folder, notes, dtype)
            if BASE in notes
            else AutoModelForSequenceClassification.from_pretrained(str(folder), dtype=dtype, **_LOCAL)
        )
        self._positions = int(model.config.max_position_embeddings)
        return model

    def encode(self, pairs: Pairs) -> list[Encoded]:
        return self._encode(pairs)

    def _encode(self, pairs: Pairs, **options: bool) -> list[Encoded]:
        first, second = map(list, zip(*pairs, strict=True))
        window = min(self._tokenizer.model_max_length, self._positions)
        return self._split(dict(self._tokenizer(first, second, truncation=True, max_length=window, **options)))


class _T5PairWeights(PairWeights):
    """Any T5: it reads a pair as one text."""

    def encode(self, pairs: Pairs) -> list[Encoded]:
        texts = [t5_input(first, second) for first, second in pairs]
        return self._split(dict(self._tokenizer(texts, truncation=True, max_length=_T5_WINDOW)))


class T5HeadWeights(_T5PairWeights):
    """A T5ForSequenceClassification, whose head has a logit for each label."""

    def _load(self, folder: Path, dtype: "torch.dtype") -> "PreTrainedModel":
        from transformers import AutoModelForSequenceClassification

        model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(str(folder), dtype=dtype, **_LOCAL)
        return model


class T5Weights(_T5PairWeights):
    """A T5 that `localmem finetune operations` trained; a digit stands for each of its labels."""

    def __init__(self, folder: Path, device: str) -> None:
        super().__init__(folder, device)
        if not self.labels:
            raise BadInput(f"{folder} is a T5 without labels; train it with `localmem finetune operations`")
        self._digits = digit_tokens(self._tokenizer, len(self.labels))

    def _load(self, folder: Path, dtype: "torch.dtype") -> "PreTrainedModel":
        from transformers import AutoModelForSeq2SeqLM

        model: PreTrainedModel = AutoModelForSeq2SeqLM.from_pretrained(str(folder), dtype=dtype, **_LOCAL)
        return model

    def _logits(self, batch: "Mapping[str, torch.Tensor]") -> "torch.Tensor":
        import torch

        start = torch.full((len(batch["input_ids"]), 1), self._model.config.decoder_start_token_id)
        output = self._model(**batch, decoder_input_ids=start.to(self._model.device), use_cache=False)
        logits: torch.Tensor = output.logits[:, 0, self._digits]
        return logits


_ON_CPU, _ON_GPU = 16, 256  # pairs a batch


class PairModel:
    """The model in a folder; its weights load when first needed.

    `device` is auto, cpu, cuda or cuda:N; a GPU computes in bfloat16, and so does a CPU with instructions for it. Calls
    from many threads are joined into batches.
    """

    def __init__(self, folder: Path, *, device: str = "auto", batch: int | None = None) -> None:
        self._folder = folder
        self._device = device
        self._batch = batch
        self._guard = threading.Lock()
        self._weights: PairWeights | None = None
        self._batched = Batched(self._run, limit=batch or _ON_GPU)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels' names, in the order of the columns."""
        return self._load().labels

    @property
    def notes(self) -> Mapping[str, object]:
        """The training's notes in the config."""
        return self._load().notes

    def probabilities(self, pairs: Pairs) -> NDArray[np.float32]:
        """(n, labels) float32 rows that sum to 1, in the order of `pairs`; a pair longer than the window is cut."""
        rows = self._batched(list(pairs))
        return np.stack(rows) if rows else np.zeros((0, len(self.labels)), dtype=np.float32)

    def _load(self) -> PairWeights:
        with self._guard:
            if self._weights is None:
                with one_at_a_time():
                    self._weights = _load_weights(self._folder, self._device)
            return self._weights

    def _run(self, pairs: list[tuple[str, str]]) -> list[Probabilities]:
        weights = self._load()
        return weights.classify(pairs, self._batch or (_ON_CPU if weights.on_cpu else _ON_GPU))


def _load_weights(folder: Path, device: str) -> PairWeights:
    config = config_of(folder)
    if is_t5(config):
        return (T5HeadWeights if has_head(config) else T5Weights)(folder, device)
    if not split_layers_of(config):
        return EncoderWeights(folder, device)
    from localmem.classification.split_bert import SplitBertWeights

    return SplitBertWeights(folder, device)


class TrainedClassifier:
    """A PairClassifier over a model that learned the operations (section 4.3)."""

    def __init__(self, model: PairModel) -> None:
        self._model = model

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        if not pairs:
            return []
        columns = [self._model.labels.index(name) for name in OPERATIONS]
        rows = self._model.probabilities(pairs)[:, columns].tolist()
        return [_most_probable(row) for row in rows]


class ZeroShotClassifier:
    """A PairClassifier over a model of inference: both directions of all pairs go out as one batch.

    The zero-shot mapping of Keep Me Updated, section 5.1.1: "PASS": entailment, "REPLACE": contradiction or reversely
    entailment, "APPEND": neutral; DELETE is not mapped.
    """

    def __init__(self, model: PairModel) -> None:
        self._model = model

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        if not pairs:
            return []
        labels = [label.lower() for label in self._model.labels]
        columns = [labels.index(name) for name in INFERENCES]
        both = [*pairs, *((second, first) for first, second in pairs)]
        rows = self._model.probabilities(both)[:, columns].tolist()
        verdicts = [dict(zip(INFERENCES, row, strict=True)) for row in rows]
        return [
            operation_from_inference(*ways) for ways in zip(verdicts[: len(pairs)], verdicts[len(pairs) :], strict=True)
        ]


def classifier_of(labels: Sequence[str], model: PairModel) -> PairClassifier:
    """The classifier for a model with these labels: operations or inferences. Raises BadInput for others."""
    if set(labels) == set(OPERATIONS):
        return TrainedClassifier(model)
    if {label.lower() for label in labels} == set(INFERENCES):
        return ZeroShotClassifier(model)
    names = ", ".join(labels) or "none"
    allowed = f"{', '.join(OPERATIONS)} or {', '.join(INFERENCES)}"
    raise BadInput(f"the model's labels are {names}; a classifier needs {allowed}")


def _most_probable(row: Sequence[float]) -> OperationLabel:
    probabilities = dict(zip(OPERATIONS, row, strict=True))
    return OperationLabel(max(OPERATIONS, key=lambda name: probabilities[name]), probabilities)


Inference = Literal["entailment", "neutral", "contradiction"]
INFERENCES: tuple[Inference, ...] = ("entailment", "neutral", "contradiction")  # the digits 0 to 2 (appendix B.4)

Verdict = Mapping[Inference, float]  # the probability of each; they sum to 1


def operation_from_inference(forward: Verdict, backward: Verdict) -> OperationLabel:
    """The operation on (memory, summary): `forward` has the memory as premise, `backward` the summary.

    Reverse entailment counts only where the forward verdict is neutral, so two sentences that entail each other are a
    PASS. The paper names the cases but not how to weight them; here the two verdicts are multiplied as if independent,
    and the most probable operation wins (of equals the first in OPERATIONS). Certain verdicts give the paper's table.
    """
    reverse = backward["entailment"]
    probabilities: dict[Operation, float] = {
        "PASS": forward["entailment"],
        "APPEND": forward["neutral"] * (1 - reverse),
        "REPLACE": forward["contradiction"] + forward["neutral"] * reverse,
        "DELETE": 0.0,
    }
    return OperationLabel(max(OPERATIONS, key=lambda name: probabilities[name]), probabilities)
