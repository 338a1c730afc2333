"""PrefixCache: keys and values of finished answers, so that a prompt is not read again where it repeats an earlier one.

Does not depend on the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch

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
    """Saved rows of at most `tokens` tokens together; the least recently used are dropped first."""

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
        """Drops all rows."""
        self._rows = []

    def drop(self, adapter: str | None) -> None:
        """Drops the rows of an adapter that is unloaded."""
        self._rows = [row for row in self._rows if row.adapter != adapter]


def _common_length(row: SavedRow, ids: Sequence[int], adapter: str | None, salt: str | None) -> int:
    if (row.adapter, row.salt) != (adapter, salt):
        return 0
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(row.ids, ids, strict=False)))
