"""The attention keys and values of a changing set of answers, attention that reads them without copying, and a cache of
those of finished answers.

Rows are padded on the left, so that all end at the same column. Does not depend on prompts or on the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

# Why a layer of our own. The DynamicLayer of transformers appends a step's column with torch.cat, which copies all keys
# and values for one new column, in every layer at every token. RowLayer allocates _SLACK columns more than it needs
# and writes the new column in place, so the copy comes once in _SLACK steps. `keys` and `values` are views of the
# part that is filled, and that is all that the model's attention sees.
#
# Why left padding. Every row's next column is then the same one, so a step is one write for the whole batch, and rows
# join by padding the narrower side on the left. When the rows that leave were the longest, the columns that are padding
# for all others are cut off; otherwise a single long answer would widen the batch for the rest of its life.
#
# Which models. Only layers that are plain columns can be padded, cropped and joined. A sliding window drops columns by
# itself, and a convolution or recurrent layer keeps a state that has no columns. For a model with such layers
# `joinable` is False: its rows are read and answered together, and others wait until they have finished.
#
# Why attention of our own. Most models share keys and values among several query heads. The sdpa attention of
# transformers repeats the keys and values for each of these heads first, which copies the cache at every step: at 8
# rows of 1,000 tokens a step on a CPU is 3 times faster without it. When there is one query column, the heads that
# share keys can stand where query columns stand, since all of them see the same columns and no mask lies between them.
# With more columns (reading a prompt) that is not so, and the ordinary function runs.

_SLACK = 128
_ATTENTION = "localmem_rows"


class RowLayer(DynamicLayer):
    """One layer's keys and values (rows x heads x columns x size), with spare columns for the steps to come."""

    keys: torch.Tensor
    values: torch.Tensor
    _spare_keys: torch.Tensor
    _spare_values: torch.Tensor

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.assign(key_states, value_states)
            return self.keys, self.values
        start, end = self.keys.shape[-2], self.keys.shape[-2] + key_states.shape[-2]
        if end > self._spare_keys.shape[-2]:
            self.assign(self.keys, self.values, spare=key_states.shape[-2] + _SLACK)
        self._spare_keys[..., start:end, :] = key_states
        self._spare_values[..., start:end, :] = value_states
        self.keys = self._spare_keys[..., :end, :]
        self.values = self._spare_values[..., :end, :]
        return self.keys, self.values

    def assign(self, keys: torch.Tensor, values: torch.Tensor, *, spare: int = _SLACK) -> None:
        """Replaces the content by a copy of these."""
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self._spare_keys, self.keys = _with_spare(keys, spare)
        self._spare_values, self.values = _with_spare(values, spare)


class RowCache:
    """A model's cache over rows. `joinable` says whether rows can join while others are decoded."""

    def __init__(self, config: "PretrainedConfig") -> None:
        self.cache = DynamicCache(config=config)
        self.joinable = all(type(layer) in (DynamicLayer, RowLayer) for layer in self.cache.layers)
        if self.joinable:
            self.cache.layers = [RowLayer() for _ in self.cache.layers]

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.cache.get_seq_length())

    def select(self, rows: torch.Tensor, crop: int) -> None:
        """Drops all other rows; where rows can join, also the first `crop` columns."""
        if not self.joinable:
            self.cache.reorder_cache(rows)
            return
        for layer in self.cache.layers:
            layer.assign(layer.keys[rows, :, crop:], layer.values[rows, :, crop:])

    def join(self, other: "RowCache") -> None:
        """Appends the rows of another cache."""
        width = max(self.width, other.width)
        for mine, theirs in zip(self.cache.layers, other.cache.layers, strict=True):
            mine.assign(_stack(mine.keys, theirs.keys, width), _stack(mine.values, theirs.values, width))

    def row(self, index: int, start: int, end: int) -> "list[tuple[torch.Tensor, torch.Tensor]]":
        """A copy of some columns of one row, for each layer."""
        rows = slice(index, index + 1)
        return [
            (layer.keys[rows, :, start:end].clone(), layer.values[rows, :, start:end].clone())
            for layer in self.cache.layers
        ]

    def fill(self, layers: "Sequence[tuple[torch.Tensor, torch.Tensor]]", columns: int) -> None:
        """Starts with the first columns of a saved row."""
        for layer, (keys, values) in zip(self.cache.layers, layers, strict=True):
            layer.assign(keys[:, :, :columns], values[:, :, :columns])


def use_row_attention(model: "PreTrainedModel") -> None:
    """Makes a model whose query heads share keys and values read them without copying them for each head."""
    if getattr(model.config, "_attn_implementation", None) != "sdpa":
        return
    AttentionInterface.register(_ATTENTION, _row_attention)
    AttentionMaskInterface.register(_ATTENTION, sdpa_mask)
    model.set_attn_implementation(_ATTENTION)


def _row_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    rows, heads, length, size = query.shape
    shared = key.shape[1]
    if length != 1 or heads == shared or kwargs.get("position_bias") is not None:
        ordinary: Callable[..., tuple[torch.Tensor, None]] = sdpa_attention_forward
        return ordinary(module, query, key, value, attention_mask, **kwargs)
    grouped = query.view(rows, shared, heads // shared, size)
    output = torch.nn.functional.scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=kwargs.get("scaling")
    )
    return output.reshape(rows, 1, heads, value.shape[-1]), None


def _with_spare(states: torch.Tensor, spare: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows, heads, columns, size = states.shape
    buffer = states.new_empty((rows, heads, columns + spare, size))
    buffer[..., :columns, :] = states
    return buffer, buffer[..., :columns, :]


def _stack(above: torch.Tensor, below: torch.Tensor, width: int) -> torch.Tensor:
    return torch.cat([torch.nn.functional.pad(part, (0, 0, width - part.shape[-2], 0)) for part in (above, below)])


# Why: the next prompt of a dialogue repeats everything up to the last turn. A saved row holds the prompt and the
# answer, so of the next prompt only the new turn has to be read.
#
# Why whole rows and a linear search, and not blocks by hash as vLLM has them: a process holds few dialogues, and the
# limit is a number of tokens, so there are few rows to compare. A row replaces the rows that it begins with, therefore
# a dialogue occupies one row however long it gets.
#
# Why a match is cut to leave one token: the model must read at least one token to produce logits.
#
# Why adapter and salt belong to the key: an adapter changes keys and values, so rows of another one would be wrong, and
# the salt keeps users apart, who could otherwise learn from the speed of a reply what others have said (vLLM's field
# cache_salt has the same meaning).

Layers = Sequence[tuple[torch.Tensor, torch.Tensor]]

# Below this many tokens reading again costs less than copying.
_SHORTEST = 32


@dataclass(frozen=True, slots=True, eq=False)
class SavedRow:
    """Token ids, the adapter that read them, and each layer's keys and values (1 x heads x ids x size)."""

    ids: tuple[int, ...]
    adapter: str | None
    layers: Layers
    salt: str | None = None


class PrefixCache:
    """Saved rows of at most `tokens` tokens together; the least recently used are dropped first.

    So that a prompt is not read again where it repeats an earlier one.
    """

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._rows: list[SavedRow] = []

    def accepts(self, length: int) -> bool:
        """Whether a row of this length is worth saving and fits."""
        return _SHORTEST <= length <= self._tokens

    def find(self, ids: Sequence[int], adapter: str | None, salt: str | None = None) -> tuple[SavedRow, int] | None:
        """The saved row with the longest common prefix, and how many of its columns to reuse; fewer than `ids` has."""
        lengths = [(_common_length(row, ids, adapter, salt), row) for row in self._rows]
        length, best = max(lengths, key=lambda pair: pair[0], default=(0, None))
        if best is None or length < _SHORTEST:
            return None
        self._rows.remove(best)
        self._rows.append(best)
        return best, min(length, len(ids) - 1)

    def add(self, new: SavedRow) -> None:
        """Saves a row in place of those that it begins with."""
        lengths = ((_common_length(row, new.ids, new.adapter, new.salt), row) for row in self._rows)
        self._rows = [row for length, row in lengths if length < len(row.ids)]
        self._rows.append(new)
        while sum(len(row.ids) for row in self._rows) > self._tokens:
            del self._rows[0]

    def clear(self) -> None:
        self._rows = []


def _common_length(row: SavedRow, ids: Sequence[int], adapter: str | None, salt: str | None) -> int:
    if (row.adapter, row.salt) != (adapter, salt):
        return 0
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(row.ids, ids, strict=False)))
