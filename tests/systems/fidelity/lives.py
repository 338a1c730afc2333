"""Random lives for the comparisons: sessions of a few words each, the same for the same seed."""

from datetime import timedelta
from itertools import permutations
from random import Random

from localmem.types import Session
from tests.fakes import START, session

WORDS = ("apple", "boat", "cello", "dune", "ember", "fjord", "grape", "heron", "iris", "jade")
SEEDS = range(12)


def remark(random: Random) -> str:
    """A sentence of three words."""
    return " ".join(random.sample(WORDS, 3))


def life(random: Random, sessions: int = 5, exchanges: int = 4) -> list[Session]:
    """Sessions three days apart, of one to `exchanges` exchanges; no remark is made twice."""
    fresh = iter(random.sample(list(permutations(WORDS, 3)), 2 * sessions * exchanges))
    return [
        session(
            *(" ".join(next(fresh)) for _ in range(2 * random.randint(1, exchanges))),
            name=f"s{number}",
            start=START + timedelta(days=3 * number),
        )
        for number in range(1, sessions + 1)
    ]


def shared_words(first: str, second: str) -> int:
    """The score of tests.fakes.WordRetriever."""
    return len(set(first.lower().split()) & set(second.lower().split()))
