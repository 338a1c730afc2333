"""Measures of a ranking. They take ids, ranks and token counts, and do not depend on a retriever or a data set.

A ranking is a list of units, best first; each is the tuple of ids that it covers (the turns of a segment, or the
session that a sentence is about). `gold` are the ids that contain the answer, at least one.
"""

from collections.abc import Sequence, Set
from itertools import chain
from math import log2

CoveredIds = Sequence[str]


def recall_at(ranking: Sequence[CoveredIds], gold: Set[str], k: int) -> float:
    """The share of the gold ids that the first `k` units cover."""
    return len(gold & {*chain.from_iterable(ranking[:k])}) / len(gold)


def hit_at(ranking: Sequence[CoveredIds], gold: Set[str], k: int) -> float:
    """1 if the first `k` units cover a gold id, else 0."""
    return float(recall_at(ranking, gold, k) > 0)


def reciprocal_rank(ranking: Sequence[CoveredIds], gold: Set[str]) -> float:
    """1 / the rank of the first unit that covers a gold id, counted from 1; 0 if there is none. Its mean is MRR."""
    ranks = (rank for rank, ids in enumerate(ranking, start=1) if not gold.isdisjoint(ids))
    first = next(ranks, None)
    return 0.0 if first is None else 1 / first


def dcg(ranking: Sequence[CoveredIds], gold: Set[str], p: int) -> float:
    """Discounted cumulative gain over the first `p` retrieved turns (SeCom, appendix A.8, eq. 6).

    sum of rel_i / log2(i + 1), where i counts retrieved turns: those of one unit follow each other. Each of the N gold
    turns is worth 1/N, so that units of any size are comparable; a turn counts once.
    """
    turns = list(dict.fromkeys(chain.from_iterable(ranking)))[:p]
    return sum(1 / len(gold) / log2(i + 1) for i, turn in enumerate(turns, start=1) if turn in gold)


def tokens_at(tokens: Sequence[int], k: int) -> int:
    """Tokens of the first `k` units."""
    return sum(tokens[:k])


def units_within(tokens: Sequence[int], budget: int) -> int:
    """How many of the first units have at most `budget` tokens together."""
    used = 0
    for index, size in enumerate(tokens):
        used += size
        if used > budget:
            return index
    return len(tokens)


def recall_within(ranking: Sequence[CoveredIds], tokens: Sequence[int], gold: Set[str], budget: int) -> float:
    """The share of the gold ids covered by the first units that have at most `budget` tokens together."""
    return recall_at(ranking, gold, units_within(tokens, budget))
