"""What a local language model makes of texts: how probable an answer is after a prompt, and vectors of texts for MAUVE.

Batched, from a folder on this machine. Likelihoods are in float32 on a CPU and in bfloat16 on a GPU, where backbones
are large; vectors are in float32 everywhere. Knows no system and no data set.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from localmem.errors import BadInput
from localmem.llm.device import resolve_device
from localmem.llm.tokenizer import ChatTokenizer
from localmem.types import Message
from localmem.weights.loading import no_progress_bar, one_at_a_time

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from transformers import PreTrainedModel

_BATCH = 8  # texts at once


class Likelihood(NamedTuple):
    """The natural log-probability of an answer, and over how many tokens; `cut` tokens of its prompt did not fit."""

    log_probability: float
    tokens: int
    cut: int

    @property
    def perplexity(self) -> float:
        """The exponential of the mean surprise of a token."""
        return math.exp(-self.log_probability / self.tokens)


def perplexity(found: Iterable[Likelihood]) -> float:
    """That of all answers together; each token counts alike. Raises BadInput where there is none."""
    held = list(found)
    if not held:
        raise BadInput("there is no answer to take the perplexity of; give at least one")
    return math.exp(-sum(one.log_probability for one in held) / sum(one.tokens for one in held))


class Scorer:
    """The chat model in a local folder, as a judge of texts, with the adapter in another where one is given.

    Weights load at once; device is auto, cpu or cuda.
    """

    def __init__(self, folder: Path, *, adapter: Path | None = None, device: str = "auto", batch: int = _BATCH) -> None:
        self._chat = ChatTokenizer(folder)
        self._batch = batch
        with one_at_a_time(), no_progress_bar():
            self._model = _load(folder, resolve_device(device), adapter)
        self._length = int(self._model.config.get_text_config(decoder=True).max_position_embeddings)

    def likelihoods(self, asked: Sequence[tuple[Sequence[Message], str]]) -> list[Likelihood]:
        """Of each answer after its messages, under the model's own chat template, in order.

        The answer ends with the token that ends a turn. A prompt that leaves no room loses its oldest tokens. Raises
        BadInput for an answer that is empty or longer than the context.
        """
        rows = [self._row(messages, answer) for messages, answer in asked]
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index].ids))
        found: dict[int, Likelihood] = {}
        for start in range(0, len(order), self._batch):
            part = order[start : start + self._batch]
            sums = self._log_probabilities([rows[index] for index in part])
            for index, total in zip(part, sums, strict=True):
                row = rows[index]
                found[index] = Likelihood(total, len(row.ids) - row.prompt, row.cut)
        return [found[index] for index in range(len(rows))]

    def features(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """(n, width) float32: the last layer's state at the last token of each text, as MAUVE takes them.

        A text longer than the context is cut at its end. Weights that are not in float32 are widened, and stay so.
        Raises BadInput for an empty text.
        """
        import numpy as np
        import torch

        rows = [self._ids(text)[: self._length] for text in texts]
        if not all(rows):
            raise BadInput(f"text {[*map(bool, rows)].index(False) + 1} is empty; MAUVE needs something of each")
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
        found: dict[int, NDArray[np.float32]] = {}
        self._model.float()
        for start in range(0, len(order), self._batch):
            part = order[start : start + self._batch]
            ids, mask = self._padded([rows[index] for index in part])
            with torch.inference_mode():
                states = self._model(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[-1]
            for at, index in enumerate(part):
                found[index] = states[at, len(rows[index]) - 1].float().cpu().numpy()
        return np.stack([found[index] for index in range(len(rows))])

    def _row(self, messages: Sequence[Message], answer: str) -> "_Row":
        prompt = self._chat.encode(messages, {})
        end = self._chat.tokenizer.eos_token_id
        said = self._ids(answer) + ([int(end)] if isinstance(end, int) else [])
        room = self._length - len(said)
        if not answer or room < 1:
            raise BadInput(f"the answer {answer[:40]!r} has {len(said)} tokens; give 1 to {self._length - 1}")
        kept = prompt[-room:]
        return _Row([*kept, *said], len(kept), len(prompt) - len(kept))

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _padded(self, rows: Sequence[Sequence[int]]) -> "tuple[torch.Tensor, torch.Tensor]":
        """Token ids and attention mask, padded on the right, where a causal model does not look."""
        import torch

        width = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=self._model.device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=self._model.device)
        return ids, mask

    def _log_probabilities(self, rows: Sequence["_Row"]) -> Iterator[float]:
        """The sum over each row's answer; only its positions become logits, for a vocabulary is wide."""
        import torch

        ids, mask = self._padded([row.ids for row in rows])
        keep = ids.shape[1] - min(row.prompt for row in rows) + 1
        with torch.inference_mode():
            logits = self._model(input_ids=ids, attention_mask=mask, logits_to_keep=keep).logits.float()
        first = ids.shape[1] - logits.shape[1]  # the position of the first logits
        for at, row in enumerate(rows):
            told = logits[at, row.prompt - 1 - first : len(row.ids) - 1 - first].log_softmax(-1)
            answer = ids[at, row.prompt : len(row.ids)]
            yield float(told.gather(-1, answer[:, None]).double().sum())


class _Row(NamedTuple):
    """Tokens of a prompt and its answer, how many are the prompt's, and how many of those were cut."""

    ids: list[int]
    prompt: int
    cut: int


def _load(folder: Path, device: str, adapter: Path | None) -> "PreTrainedModel":
    import torch
    from transformers import AutoModelForCausalLM

    kind = torch.float32 if device == "cpu" else torch.bfloat16
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(str(folder), dtype=kind, local_files_only=True)
    if adapter is not None:
        _adapt(model, adapter)
    return model.to(device).eval()


def _adapt(model: "PreTrainedModel", adapter: Path) -> None:
    """The adapter's weights beside the model's. Raises BadInput for a folder that holds none for this model."""
    if not (adapter / "adapter_config.json").is_file():
        raise BadInput(f"there is no adapter in {adapter}; give the --out of `localmem distill train`")
    try:
        model.load_adapter(str(adapter))
    except (RuntimeError, ValueError) as error:
        raise BadInput(f"{adapter} does not suit the model: {' '.join(str(error).split())[:200]}") from error
