"""How well a ranking finds what was asked for. Knows ids, ranks and token counts; no unit, no retriever, no data set.

A ranking is a list of units, best first; each is the tuple of ids that it covers (the turns a segment was said in, or
the session a sentence is about). `gold` are the ids that hold the answer, one at least.
"""

from collections.abc import Sequence, Set
from itertools import chain
from math import log2

Covered = Sequence[str]


def recall_at(ranking: Sequence[Covered], gold: Set[str], k: int) -> float:
    """The share of the gold ids that the first `k` units cover."""
    return len(gold & {*chain.from_iterable(ranking[:k])}) / len(gold)


def hit_at(ranking: Sequence[Covered], gold: Set[str], k: int) -> float:
    """1 when the first `k` units cover a gold id, else 0."""
    return float(recall_at(ranking, gold, k) > 0)


def reciprocal_rank(ranking: Sequence[Covered], gold: Set[str]) -> float:
    """1 / the rank of the first unit that covers a gold id, counted from 1; 0 when none does. Its mean is MRR."""
    ranks = (rank for rank, covered in enumerate(ranking, start=1) if not gold.isdisjoint(covered))
    first = next(ranks, None)
    return 0.0 if first is None else 1 / first


def dcg(ranking: Sequence[Covered], gold: Set[str], p: int) -> float:
    """Discounted cumulative gain over the first `p` retrieved turns (SeCom, appendix A.8, eq. 6).

    sum of rel_i / log2(i + 1), where i counts retrieved turns: a unit of several turns puts them one after the other.
    Each of the N gold turns is worth 1/N, so that units of any size are measured alike; a turn counts once.
    """
    turns = list(dict.fromkeys(chain.from_iterable(ranking)))[:p]
    return sum(1 / len(gold) / log2(i + 1) for i, turn in enumerate(turns, start=1) if turn in gold)


def tokens_at(tokens: Sequence[int], k: int) -> int:
    """Tokens of the first `k` units."""
    return sum(tokens[:k])


def fitting(tokens: Sequence[int], budget: int) -> int:
    """How many of the first units hold at most `budget` tokens together."""
    used = 0
    for place, size in enumerate(tokens):
        used += size
        if used > budget:
            return place
    return len(tokens)


def recall_within(ranking: Sequence[Covered], tokens: Sequence[int], gold: Set[str], budget: int) -> float:
    """The share of the gold ids that the first units cover which hold at most `budget` tokens together."""
    return recall_at(ranking, gold, fitting(tokens, budget))
