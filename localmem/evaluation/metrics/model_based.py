"""Measures that need a local model: the likelihood of an answer after a prompt, MAUVE and BERTScore.

Models are folders on this machine; nothing is downloaded. Likelihoods are computed in batches, in float32 on a CPU and
in bfloat16 on a GPU, where backbones are large; vectors are in float32 everywhere. BERTScore and MAUVE are computed by
their own libraries. Does not depend on a system or a data set.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from localmem.batching import map_by_length
from localmem.errors import BadInput, ModelMissing, requires
from localmem.evaluation.metrics.text import Overlap, check_pairs
from localmem.llm.device import no_progress_bar, one_at_a_time, pad_rows, resolve_device
from localmem.llm.tokenizer import ChatTokenizer
from localmem.types import Message

if TYPE_CHECKING:
    import numpy as np
    from bert_score import BERTScorer
    from numpy.typing import NDArray
    from transformers import PreTrainedModel

_BATCH = 8  # texts at once
_BERT_BATCH = 16
MIN_TEXTS = 20  # texts from which MAUVE has two clusters of ten, its minimum; its authors recommend thousands
_SEED = 25  # of mauve-text


class Likelihood(NamedTuple):
    """The natural log-probability of an answer and its number of tokens; `cut` tokens of its prompt did not fit."""

    log_probability: float
    tokens: int
    cut: int

    @property
    def perplexity(self) -> float:
        """Exp of the mean negative log-probability per token."""
        return math.exp(-self.log_probability / self.tokens)


def perplexity(likelihoods: Iterable[Likelihood]) -> float:
    """That of all answers together, each token with the same weight. Raises BadInput if there is none."""
    items = list(likelihoods)
    if not items:
        raise BadInput("perplexity needs at least one answer; there is none")
    return math.exp(-sum(item.log_probability for item in items) / sum(item.tokens for item in items))


class Scorer:
    """The chat model in a local folder, as a scorer of texts, with the adapter in `adapter` if given.

    Weights load at once; device is auto, cpu or cuda.
    """

    def __init__(self, folder: Path, *, adapter: Path | None = None, device: str = "auto", batch: int = _BATCH) -> None:
        self._chat = ChatTokenizer(folder)
        self._batch = batch
        with one_at_a_time(), no_progress_bar():
            self._model = _load(folder, resolve_device(device), adapter)
        self._length = int(self._model.config.get_text_config(decoder=True).max_position_embeddings)

    def likelihoods(self, pairs: Sequence[tuple[Sequence[Message], str]]) -> list[Likelihood]:
        """The likelihood of each answer after its messages, with the model's own chat template, in order.

        The answer ends with the end-of-turn token. A prompt that leaves no room for it loses its oldest tokens. Raises
        BadInput for an answer that is empty or longer than the context.
        """
        rows = [self._row(messages, answer) for messages, answer in pairs]
        return map_by_length(lambda batch: list(self._likelihoods(batch)), rows, lambda row: len(row.ids), self._batch)

    def features(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """(n, width) float32: the last layer's state at the last token of each text, as MAUVE takes them.

        A text longer than the context is cut at its end. Weights in another type are converted to float32 and stay so.
        Raises BadInput for an empty text.
        """
        import numpy as np
        import torch

        rows = [self._ids(text)[: self._length] for text in texts]
        if not all(rows):
            raise BadInput(f"text {[*map(bool, rows)].index(False) + 1} is empty; MAUVE needs texts with words")
        self._model.float()

        def last_states(batch: "Sequence[list[int]]") -> "list[NDArray[np.float32]]":
            ids, mask = pad_rows(batch, self._model.device)
            with torch.inference_mode():
                states = self._model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[-1]
            return [states[place, len(row) - 1].float().cpu().numpy() for place, row in enumerate(batch)]

        return np.stack(map_by_length(last_states, rows, len, self._batch))

    def _row(self, messages: Sequence[Message], answer: str) -> "_Row":
        prompt = self._chat.encode(messages, {})
        end = self._chat.tokenizer.eos_token_id
        target = self._ids(answer) + ([int(end)] if isinstance(end, int) else [])
        room = self._length - len(target)
        if not answer or room < 1:
            raise BadInput(f"the answer {answer[:40]!r} has {len(target)} tokens; give 1 to {self._length - 1}")
        context = prompt[-room:]
        return _Row([*context, *target], len(context), len(prompt) - len(context))

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _likelihoods(self, rows: Sequence["_Row"]) -> Iterator[Likelihood]:
        """Only the positions of the answers become logits, since a vocabulary is wide."""
        import torch

        ids, mask = pad_rows([row.ids for row in rows], self._model.device)
        width = ids.shape[1] - min(row.prompt for row in rows) + 1
        with torch.inference_mode():
            logits = self._model(input_ids=ids, attention_mask=mask, logits_to_keep=width).logits.float()
        first = ids.shape[1] - logits.shape[1]  # the position of the first logits
        for place, row in enumerate(rows):
            weights = logits[place, row.prompt - 1 - first : len(row.ids) - 1 - first].log_softmax(-1)
            answer = ids[place, row.prompt : len(row.ids)]
            total = float(weights.gather(-1, answer[:, None]).double().sum())
            yield Likelihood(total, len(row.ids) - row.prompt, row.cut)


class _Row(NamedTuple):
    """Tokens of a prompt and its answer, how many of them are the prompt's, and how many prompt tokens were cut."""

    ids: list[int]
    prompt: int
    cut: int


def _load(folder: Path, device: str, adapter: Path | None) -> "PreTrainedModel":
    import torch
    from transformers import AutoModelForCausalLM

    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(str(folder), dtype=dtype, local_files_only=True)
    if adapter is not None:
        _add_adapter(model, adapter)
    return model.to(device).eval()


def _add_adapter(model: "PreTrainedModel", adapter: Path) -> None:
    """Load the adapter's weights beside the model's. Raises BadInput for a folder without one for this model."""
    if not (adapter / "adapter_config.json").is_file():
        raise BadInput(f"there is no adapter in {adapter}; give the --out of `localmem distill train`")
    try:
        model.load_adapter(str(adapter))
    except (RuntimeError, ValueError) as error:
        raise BadInput(f"{adapter} does not fit the model: {' '.join(str(error).split())[:200]}") from error


class BertScore:
    """BERTScore with the encoder in a local folder (Zhang et al., 2020): words matched by the cosines of their vectors.

    `layers` is the layer whose vectors are used. The library knows the best layer of models on the hub (17 for
    roberta-large, for one) but not of a folder, so the default is the last. Figures of different encoders or layers
    cannot be compared. Scores are neither rescaled nor weighted by idf.
    """

    def __init__(self, folder: Path, *, layers: int | None = None, device: str = "auto") -> None:
        self._scorer, self.layers = _load_scorer(folder, layers, resolve_device(device))

    def score(self, texts: Sequence[str], golds: Sequence[str]) -> list[Overlap]:
        """One score per text, in order. An empty text scores 0: it has nothing to match."""
        check_pairs(texts, golds)
        filled = [index for index in range(len(texts)) if texts[index].strip() and golds[index].strip()]
        scores = [Overlap(0.0, 0.0, 0.0)] * len(texts)
        if filled:
            ours, theirs = [texts[index] for index in filled], [golds[index] for index in filled]
            columns = self._scorer.score(ours, theirs, batch_size=_BERT_BATCH)
            for index, row in zip(filled, zip(*(column.tolist() for column in columns), strict=True), strict=True):
                scores[index] = Overlap(*row)
        return scores


def mauve(ours: "NDArray[np.float32]", theirs: "NDArray[np.float32]", *, seed: int = _SEED) -> float:
    """How close the generated texts are to those that people wrote, as two sets of vectors (0 to 1).

    Pillutla et al., 2021, by mauve-text with its own settings: a tenth as many clusters as texts. It describes a
    system's texts together and no single one, and depends on the model behind the vectors and on their number. Raises
    BadInput for fewer than 20 of either, and MissingExtra without mauve-text.
    """
    if min(len(ours), len(theirs)) < MIN_TEXTS:
        raise BadInput(f"MAUVE cannot compare {len(ours)} and {len(theirs)} texts; give at least {MIN_TEXTS} of both")
    with requires("MAUVE needs mauve-text", "eval"):
        from mauve import compute_mauve
    return float(compute_mauve(p_features=ours, q_features=theirs, seed=seed, verbose=False).mauve)


def _load_scorer(folder: Path, layers: int | None, device: str) -> "tuple[BERTScorer, int]":
    with requires("BERTScore needs bert-score", "eval"):
        from bert_score import BERTScorer
    deepest = _count_layers(folder)
    layers = deepest if layers is None else layers
    if not 1 <= layers <= deepest:
        raise BadInput(f"the encoder in {folder} has no layer {layers}; give 1 to {deepest}")
    with one_at_a_time(), no_progress_bar():
        return BERTScorer(model_type=str(folder), num_layers=layers, device=device), layers


def _count_layers(folder: Path) -> int:
    try:
        return int(json.loads((folder / "config.json").read_text(encoding="utf-8"))["num_hidden_layers"])
    except (OSError, ValueError, KeyError) as error:
        raise ModelMissing(f"there is no encoder in {folder}; give the folder of a BERT-like model") from error
