"""Keys and values of finished answers, kept so that a prompt that begins like an earlier one is not read again.

A dialogue's next prompt repeats all of it up to the last turn. Knows no model; the least recently used go first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch

Layers = Sequence[tuple[torch.Tensor, torch.Tensor]]

# Below this many tokens reading again costs less than copying.
_SHORTEST = 32


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """Token ids, the adapter they were read with, and each layer's keys and values (1 x heads x ids x size).

    What has another `salt` is kept apart, as vLLM does with its field cache_salt.
    """

    ids: tuple[int, ...]
    adapter: str | None
    layers: Layers
    salt: str | None = None


class Prefixes:
    """At most `tokens` tokens of saved rows."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._saved: list[Saved] = []

    def wants(self, length: int) -> bool:
        return _SHORTEST <= length <= self._tokens

    def find(self, ids: Sequence[int], adapter: str | None, salt: str | None = None) -> tuple[Saved, int] | None:
        """The saved row with the longest beginning in common with `ids`, and its length; one id stays to be read."""
        shared = [(_shared(saved, ids, adapter, salt), saved) for saved in self._saved]
        length, best = max(shared, key=lambda pair: pair[0], default=(0, None))
        if best is None or length < _SHORTEST:
            return None
        self._saved.remove(best)
        self._saved.append(best)
        return best, min(length, len(ids) - 1)

    def keep(self, new: Saved) -> None:
        """Saves a row in place of those that it begins with."""
        shared = ((_shared(saved, new.ids, new.adapter, new.salt), saved) for saved in self._saved)
        self._saved = [saved for length, saved in shared if length < len(saved.ids)]
        self._saved.append(new)
        while sum(len(saved.ids) for saved in self._saved) > self._tokens:
            del self._saved[0]

    def clear(self) -> None:
        self._saved = []

    def forget(self, adapter: str | None) -> None:
        """Drops what was read with an adapter that is no more."""
        self._saved = [saved for saved in self._saved if saved.adapter != adapter]


def _shared(saved: Saved, ids: Sequence[int], adapter: str | None, salt: str | None) -> int:
    if (saved.adapter, saved.salt) != (adapter, salt):
        return 0
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(saved.ids, ids, strict=False)))
