"""A BERT by torch: texts packed without padding on a CPU, padded to the longest on other devices.

Does not depend on files, on tokenizers or on what the pooled states are used for.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from localmem.llm.device import core_count
from localmem.retrieval.bert_model import KINDS, POSITIONS, WORDS, BertLayout, BertModel, Rows
from localmem.retrieval.torch_threads import one_thread_a_core

# Tokens that are worth a thread of their own: on one core a token of MiniLM takes 0.15 ms, the smallest call 5.
_PART = 128
_THREADS = one_thread_a_core("localmem-encoder")


class TorchBert(BertModel):
    """`weights` by their names in BERT, moved to a device in a number format."""

    def __init__(self, layout: BertLayout, weights: Mapping[str, Rows], device: str, dtype: torch.dtype) -> None:
        self.device = device
        self.dtype = dtype
        self._layout = layout
        tensors = {name: torch.tensor(array).to(device=device, dtype=dtype) for name, array in weights.items()}
        super().__init__(layout.heads, layout.epsilon, tensors)

    def pool(self, ids: Sequence[Sequence[int]]) -> Rows:
        """The pooled states of texts of any lengths, in float32."""
        raise NotImplementedError

    def _linear(self, name: str, states: Tensor) -> Tensor:
        return functional.linear(states, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _norm(self, name: str, states: Tensor) -> Tensor:
        scale, shift = self._weights[f"{name}.LayerNorm.weight"], self._weights[f"{name}.LayerNorm.bias"]
        return functional.layer_norm(states, scale.shape, scale, shift, self._epsilon)

    def _gelu(self, states: Tensor) -> Tensor:
        return functional.gelu(states)


class PackedBert(TorchBert):
    """For a CPU: the tokens of all texts as rows of one array, and attention text by text.

    Nothing is computed for padding, and a text has the same vector whatever it is encoded with. Parts of the texts are
    computed on one core each.
    """

    def pool(self, ids: Sequence[Sequence[int]]) -> Rows:
        return np.concatenate(list(_THREADS.map(self._pool_part, divide_texts(ids, core_count()))))

    def _pool_part(self, ids: Sequence[Sequence[int]]) -> Rows:
        lengths = list(map(len, ids))
        with torch.inference_mode():
            states = self._embed_packed(ids)
            for layer in range(self._layout.layers):
                states = self._block(layer, states, lengths)
            texts = states.split(lengths)
            if self._layout.pooling == "cls":
                pooled = torch.stack([text[0] for text in texts])
            else:
                counts = torch.tensor(lengths, dtype=self.dtype)[:, None]
                pooled = torch.stack([text.sum(0) for text in texts]) / counts
            rows: Rows = pooled.float().numpy()
        return rows

    def _embed_packed(self, ids: Sequence[Sequence[int]]) -> Tensor:
        tokens = torch.tensor([token for text in ids for token in text])
        places = torch.cat([torch.arange(len(text)) for text in ids])
        states = self._weights[WORDS][tokens] + self._weights[POSITIONS][places]
        return self._norm("embeddings", states + self._weights[KINDS][0])

    def _attention(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Sequence[int]) -> Tensor:
        """`mask` is the lengths of the texts."""
        texts = zip(*(states[None].split(mask, dim=2) for states in (queries, keys, values)), strict=True)
        return torch.cat([functional.scaled_dot_product_attention(*text)[0] for text in texts], dim=1)


class PaddedBert(TorchBert):
    """For a GPU: a few large operations. Of a GPU, each thread that computes takes memory for itself, which a backbone
    there leaves little of, so there is one."""

    def __init__(self, layout: BertLayout, weights: Mapping[str, Rows], device: str, dtype: torch.dtype) -> None:
        super().__init__(layout, weights, device, dtype)
        self._only_thread = ThreadPoolExecutor(1, "localmem-encoder")

    def pool(self, ids: Sequence[Sequence[int]]) -> Rows:
        return self._only_thread.submit(self._pool_texts, ids).result()

    def _pool_texts(self, ids: Sequence[Sequence[int]]) -> Rows:
        width = max(map(len, ids))
        with torch.inference_mode():
            batch = torch.tensor([[*text, *[0] * (width - len(text))] for text in ids], device=self.device)
            mask = [[1.0] * len(text) + [0.0] * (width - len(text)) for text in ids]
            rows: Rows = (
                self._pool(batch, torch.tensor(mask, device=self.device, dtype=self.dtype)).float().cpu().numpy()
            )
        return rows

    def _pool(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(n, dimension) pooled states of (n, tokens) ids; `mask` is (n, tokens) and 0 for padding."""
        states, within = self._embed(ids), (mask > 0)[:, None, None, :]
        for layer in range(self._layout.layers):
            states = self._block(layer, states, within)
        return (
            states[:, 0]
            if self._layout.pooling == "cls"
            else (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)
        )

    def _attention(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def divide_texts(ids: Sequence[Sequence[int]], most: int) -> list[list[Sequence[int]]]:
    """The texts in at most so many parts of about as many tokens each, in order."""
    total = sum(map(len, ids))
    count = min(most, len(ids), -(-total // _PART))
    ends = np.cumsum([len(text) for text in ids])
    # A text belongs to the part that its middle lies in.
    places = [min(count - 1, int((end - len(text) / 2) * count / total)) for text, end in zip(ids, ends, strict=True)]
    return [[text for _, text in part] for _, part in groupby(zip(places, ids, strict=True), key=lambda pair: pair[0])]
