"""The network of a SplitReranker: a BERT whose upper layers read a query and a text together.

The lower layers read each text by itself, so that the states of a text serve every query (DeFormer, Cao et al., ACL
2020). Positions start again with the text. The score begins as that of the encoder which the network was made of: the
cosine of both texts' mean states, and the mean over the query's tokens of the closest token in the text (ColBERT,
Khattab and Zaharia, SIGIR 2020). Padding is skipped but in attention. Does not depend on files or on tokenizers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from localmem.retrieval.bert_model import KINDS, POSITIONS, WORDS
from localmem.retrieval.numpy_pairs import DIFFERENCE, HEAD_RATE, PRODUCT, SCALARS, PairShape

Linear = Callable[[tuple[str, ...], Tensor], Tensor]
"""What the linear layers of these names give for (tokens, width) states, side by side."""

_HIDDEN = -1e4
# A CPU computes attention over a multiple of so many tokens twice as fast: what is left over goes one by one.
_LANES = 16


def new_head(width: int) -> dict[str, Tensor]:
    """The head of a network that was not trained: the encoder's own similarity."""
    return {
        SCALARS: torch.tensor([8.0, 4.0, -6.0]),
        PRODUCT: torch.zeros(width),
        DIFFERENCE: torch.zeros(width),
    }


def float_linear(weights: Mapping[str, Tensor]) -> Linear:
    """Linear layers in the weights' own number format."""

    def linear(names: tuple[str, ...], states: Tensor) -> Tensor:
        weight, bias = (torch.cat([weights[f"{name}.{part}"] for name in names]) for part in ("weight", "bias"))
        return functional.linear(states, weight, bias)

    return linear


@dataclass(frozen=True, slots=True)
class _Rows:
    """Texts of different lengths as rows of one padded array: their number, its width, and what is no padding.

    The layout is computed on the CPU and copied, so that a GPU is never waited for.
    """

    count: int
    width: int
    mask: Tensor
    places: Tensor

    @classmethod
    def of(cls, lengths: Sequence[int], device: torch.device) -> "_Rows":
        width = -(-max(lengths) // _LANES) * _LANES
        mask = _first_places(lengths, width)
        places = mask.flatten().nonzero()[:, 0]
        return cls(len(lengths), width, mask.to(device), places.to(device))

    def pad(self, states: Tensor) -> Tensor:
        """(count, width, ...) of (tokens, ...), zeros where there is padding."""
        empty = states.new_zeros(self.count * self.width, *states.shape[1:])
        return empty.index_copy(0, self.places, states).view(self.count, self.width, *states.shape[1:])

    def unpad(self, states: Tensor) -> Tensor:
        """The inverse of `pad`."""
        return states.flatten(0, 1)[self.places]


def _first_places(lengths: Sequence[int], width: int) -> Tensor:
    """(n, width) on the CPU: for each length whether a place is among the first so many."""
    return torch.arange(width)[None] < torch.tensor(lengths)[:, None]


class PairNetwork:
    """`weights` by their names in BERT, and the head's; `linear` computes the linear layers.

    Computes where the weights are.
    """

    def __init__(self, shape: PairShape, weights: Mapping[str, Tensor], linear: Linear) -> None:
        self.shape = shape
        self._weights = weights
        self._linear = linear

    def read(self, texts: Sequence[Sequence[int]]) -> list[Tensor]:
        """The (tokens, width) states of each text after the lower layers."""
        lengths = list(map(len, texts))
        rows = _Rows.of(lengths, self._device)
        tokens = torch.tensor([token for text in texts for token in text], device=self._device)
        states = self._weights[WORDS][tokens] + self._weights[POSITIONS][rows.places % rows.width]
        states = self._norm("embeddings", states + self._weights[KINDS][0])
        hidden = ~rows.mask[:, None, None] * _HIDDEN
        for layer in range(self.shape.split):
            states = self._block(layer, states, rows, hidden)
        return list(states.split(lengths))

    def compare(self, pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """The score of each query with its text, both as `read` gave them."""
        lengths = [len(query) for query, _ in pairs]
        rows = _Rows.of([len(query) + len(text) for query, text in pairs], self._device)
        states = torch.cat([part for pair in pairs for part in pair])
        first = _first_places(lengths, rows.width).to(self._device)
        across = first[:, None, :, None] != first[:, None, None, :]
        attention = across * self.shape.crossing + ~rows.mask[:, None, None] * _HIDDEN
        for layer in range(self.shape.split, self.shape.layers):
            states = self._block(layer, states, rows, attention)
        return self._head(rows.pad(states.float()), first, rows.mask & ~first, max(lengths))

    @property
    def _device(self) -> torch.device:
        return self._weights[WORDS].device

    def _block(self, layer: int, states: Tensor, rows: _Rows, attention: Tensor) -> Tensor:
        name = f"encoder.layer.{layer}"
        parts = self._linear(tuple(f"{name}.attention.self.{part}" for part in ("query", "key", "value")), states)
        heads = rows.pad(parts).unflatten(-1, (3, self.shape.heads, -1)).permute(2, 0, 3, 1, 4)
        context = rows.unpad(_attend(heads, attention).transpose(1, 2).flatten(2))
        output = f"{name}.attention.output"
        states = self._norm(output, states + self._linear((f"{output}.dense",), context))
        inner = functional.gelu(self._linear((f"{name}.intermediate.dense",), states))
        return self._norm(f"{name}.output", states + self._linear((f"{name}.output.dense",), inner))

    def _norm(self, name: str, states: Tensor) -> Tensor:
        scale, shift = (self._weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        return functional.layer_norm(states.float(), scale.shape, scale, shift, self.shape.epsilon)

    def _head(self, states: Tensor, in_query: Tensor, in_text: Tensor, width: int) -> Tensor:
        """(n,) scores of (n, tokens, width) states; no query has more than `width` tokens."""
        unit = functional.normalize(states, dim=-1, eps=1e-6)
        near = (unit[:, :width] @ unit.transpose(1, 2)).masked_fill(~in_text[:, None], -1.0).amax(-1)
        queries = in_query[:, :width].float()
        closest = (near * queries).sum(1) / queries.sum(1)
        query, text = (_mean_direction(states, part.float()) for part in (in_query, in_text))
        cosine, token, offset = self._weights[SCALARS]
        learned = (query * text) @ self._weights[PRODUCT] + (query - text).abs() @ self._weights[DIFFERENCE]
        return cosine * (query * text).sum(-1) + token * closest + offset + HEAD_RATE * learned


def _mean_direction(states: Tensor, mask: Tensor) -> Tensor:
    return functional.normalize(torch.einsum("ntw,nt->nw", states, mask), dim=-1)


def _attend(heads: Tensor, attention: Tensor) -> Tensor:
    """Attention within (3, n, heads, tokens, size) queries, keys and values."""
    query, key, value = heads
    if query.device.type != "cpu" or not torch.is_grad_enabled():
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=attention.to(query.dtype))
    # Written out: on a CPU the gradient of the fused one took twice as long as all the rest of the training.
    scores = (query @ key.transpose(-1, -2)).float() * query.shape[-1] ** -0.5 + attention
    return scores.softmax(-1).to(value.dtype) @ value
