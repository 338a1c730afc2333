"""The probabilities of a Choice's options, followed along one decoding.

Backends give what they know of each step; this module knows no backend.
"""

import itertools
import math
import os
from collections.abc import Iterable, Sequence

# Stands for the bytes of a token that a server could not send, because they are only part of a character.
UNKNOWN = "\ufffd".encode()


class ChoiceMass:
    """Follows one decoding along the options of a Choice, for the probability of each.

    It gets, step by step, the tokens that the options allow and their log-probabilities. The definition is the same for
    every backend. At each step the tokens that the options allow are compared with each other (softmax over them
    alone). Tokens after which the same options remain open as after the decoded token follow the path; the mass of any
    other token is divided equally among the options that it leaves open. The mass that remains at the end belongs to
    the decoded option. Where the options differ in their first token this is exact; where several options leave the
    path together, their shares are equal.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self._bytes = {option: option.encode() for option in options}
        self._mass = dict.fromkeys(options, 0.0)
        self._path_mass = 1.0
        self._path = b""
        self._open = frozenset(options)
        self._lost = False

    @property
    def decision(self) -> str | None:
        """The decoded option, once no other is possible."""
        return next(iter(self._open)) if len(self._open) == 1 else None

    def step(self, tokens: Sequence[tuple[bytes, float]], chosen: bytes, *, floor: float | None = None) -> None:
        """One decoding step; ignored once the option is decided, or none is possible.

        `tokens` are what the options allow, with log-probabilities up to a constant; where an option is complete, a
        token that continues none ends the answer, elsewhere it is ignored. `floor` is given where `tokens` are only the
        likeliest: an option that none of them leads to counts as one token of that log-probability.
        """
        if self._lost or len(self._open) <= 1:
            return
        path = self._open_after(chosen)
        weighted = [(self._open_after(token), weight, UNKNOWN in token) for token, weight in tokens]
        if floor is not None:
            reached = frozenset[str]().union(*(options for options, _, _ in weighted))
            weighted += [(frozenset([option]), floor, False) for option in self._open - reached]
        total = _log_sum(weight for options, weight, _ in weighted if options)
        leaving = [(options, weight) for options, weight, unknown in weighted if options != path or unknown]
        for options, weight in leaving:
            for option in options:
                self._mass[option] += self._path_mass * math.exp(weight - total) / len(options)
        self._path_mass *= 1 - sum(math.exp(weight - total) for options, weight in leaving if options)
        self._path += chosen.partition(UNKNOWN)[0]
        self._open = path
        self._lost = UNKNOWN in chosen  # the place within a character is unknown from here on

    def end(self, answer: str) -> dict[str, float]:
        """Log-probabilities of the options, `answer` being the decoded one."""
        self._mass[answer] += max(self._path_mass, 0.0)
        total = sum(self._mass.values())
        return {option: math.log(mass / total) if mass else -math.inf for option, mass in self._mass.items()}

    def continues(self, token: bytes) -> bool:
        """Whether an option that is still open goes on with this token."""
        text = self._path + token.partition(UNKNOWN)[0]
        return any(self._bytes[option].startswith(text) for option in self._open)

    def _open_after(self, token: bytes) -> frozenset[str]:
        text = self._path + token.partition(UNKNOWN)[0]
        continued = frozenset(option for option in self._open if self._bytes[option].startswith(text))
        return continued or frozenset(option for option in self._open if self._bytes[option] == self._path)


def steps_to_decide(options: Sequence[str]) -> int:
    """Tokens after which only one option can be open, each token being a byte or more."""
    encoded = sorted(option.encode() for option in options)
    # commonprefix is meant for paths but compares any sequences item by item, here bytes.
    return 1 + max(len(os.path.commonprefix(pair)) for pair in itertools.pairwise(encoded))  # noqa: RUF071


def _log_sum(weights: Iterable[float]) -> float:
    values = list(weights)
    if not values:
        return -math.inf
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))
