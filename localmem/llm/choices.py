"""What a model thinks of the options of a Choice, read off the decoding of one of them.

Knows no backend: it is told, step by step, the tokens that the options allow and their log-probabilities.

The definition, the same for every backend. At each step the tokens that the options allow are weighed against each
other (softmax over them alone). Tokens that leave the same options open as the decoded one go on along the path; the
mass of any other token is shared equally by the options it leaves open. What is left at the end is the decoded
option's. Where the options part at their first token this is exact; where several leave the path together, their share
of it is even.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

# Stands for the bytes of a token that a server could not send, because they are only part of a character.
UNKNOWN = "\ufffd".encode()


class ChoiceMass:
    """Follows one decoding along the options."""

    def __init__(self, options: Sequence[str]) -> None:
        self._bytes = {option: option.encode() for option in options}
        self._mass = dict.fromkeys(options, 0.0)
        self._left = 1.0
        self._path = b""
        self._open = frozenset(options)
        self._lost = False

    @property
    def decided(self) -> str | None:
        """The option decoded, once no other is possible."""
        return next(iter(self._open)) if len(self._open) == 1 else None

    def step(self, tokens: Sequence[tuple[bytes, float]], chosen: bytes, *, floor: float | None = None) -> None:
        """One decoding step; nothing happens once the option is decided.

        `tokens` are what the options allowed, with log-probabilities up to a constant; where an option is complete, a
        token that continues none ends the answer, elsewhere it counts for nothing. `floor` is given where `tokens` are
        only the likeliest: an option that none of them leads to is weighed as one token of that log-probability.
        """
        if self._lost or len(self._open) == 1:
            return
        path = self._reached(chosen)
        weighed = [(self._reached(token), weight, UNKNOWN in token) for token, weight in tokens]
        if floor is not None:
            known = frozenset[str]().union(*(options for options, _, _ in weighed))
            weighed += [(frozenset([option]), floor, False) for option in self._open - known]
        total = _log_sum(weight for options, weight, _ in weighed if options)
        leaving = [(options, weight) for options, weight, unknown in weighed if options != path or unknown]
        for options, weight in leaving:
            for option in options:
                self._mass[option] += self._left * math.exp(weight - total) / len(options)
        self._left *= 1 - sum(math.exp(weight - total) for options, weight in leaving if options)
        self._path += chosen.partition(UNKNOWN)[0]
        self._open = path
        self._lost = UNKNOWN in chosen  # where within a character the path stands cannot be known any more

    def end(self, answer: str) -> dict[str, float]:
        """Log-probabilities over the options, `answer` being the one that was decoded."""
        self._mass[answer] += max(self._left, 0.0)
        total = sum(self._mass.values())
        return {option: math.log(mass / total) if mass else -math.inf for option, mass in self._mass.items()}

    def _reached(self, token: bytes) -> frozenset[str]:
        """The options that stay open after `token`."""
        text = self._path + token.partition(UNKNOWN)[0]
        going_on = frozenset(option for option in self._open if self._bytes[option].startswith(text))
        return going_on or frozenset(option for option in self._open if self._bytes[option] == self._path)


def steps_to_decide(options: Sequence[str]) -> int:
    """Tokens after which any decoding has left but one option open, each token being a byte or more."""
    encoded = sorted(option.encode() for option in options)
    return 1 + max(_common(left, right) for left, right in itertools.pairwise(encoded))


def _common(left: bytes, right: bytes) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )


def _log_sum(weights: Iterable[float]) -> float:
    """The logarithm of the sum of the weights' exponentials."""
    listed = list(weights)
    top = max(listed)
    return top + math.log(sum(math.exp(weight - top) for weight in listed))
