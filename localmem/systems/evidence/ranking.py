"""Ranking: how likely an exchange answers a question, from a few features and the weights in ranking.yaml.

The features are the reranker's score, the place in the search, and a second hop: names and things that an exchange
shares with those found first, which often are about the same matter. Fitted by `localmem finetune ranking`. Pure
functions; does not depend on how exchanges are searched.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain
from math import exp, log, log1p
from pathlib import Path

from localmem.files import read_yaml
from localmem.retrieval.bm25 import words
from localmem.retrieval.views import FUSION_CONSTANT
from localmem.types import Hit

RERANKER, PLACE, SHARED = "reranker", "place", "shared"
_LEAST = 1e-6  # the least probability of a score
_FIRST = 3  # exchanges that the second hop starts from
_RARE = 3  # exchanges that may hold a word which counts as a name or a thing
_STEM = 5  # letters of a word that are compared: the endings of longer ones do not matter


def describe(statements: Sequence[str], scores: Sequence[float] | None) -> list[dict[str, float]]:
    """The features of exchanges in the order of the search: what the user said there, and the reranker's scores."""
    shared = shared_words(statements)
    odds = [log_odds(score, _LEAST) for score in scores] if scores is not None else [0.0] * len(statements)
    places = [FUSION_CONSTANT / (FUSION_CONSTANT + rank) for rank in range(1, len(statements) + 1)]
    return [
        {RERANKER: own, PLACE: place, SHARED: log1p(count)}
        for own, place, count in zip(odds, places, shared, strict=True)
    ]


def shared_words(texts: Sequence[str]) -> list[float]:
    """For each text the rare words that it shares with the first three others, divided by the place of these."""
    stems = list(map(_stems, texts))
    counts = Counter(chain.from_iterable(stems))
    rare = {stem for stem, count in counts.items() if count <= _RARE}
    first = [stems_of_first & rare for stems_of_first in stems[:_FIRST]]
    return [
        sum(len(own & other) / (place + 1) for place, other in enumerate(first) if place != number)
        for number, own in enumerate(stems)
    ]


@lru_cache(maxsize=4096)  # the same exchanges are candidates of many questions
def _stems(text: str) -> frozenset[str]:
    return frozenset(word[:_STEM] for word in words(text))


def probability(features: Mapping[str, float]) -> float:
    """The probability that an exchange answers the question."""
    return 1 / (1 + exp(-_weights()["bias"] - sum(_weights()[name] * value for name, value in features.items())))


def log_odds(score: float, least: float) -> float:
    """The log-odds of a probability, as if it were at least `least` and at most 1 - `least`: 0 and 1 have none."""
    likely = min(max(score, least), 1 - least)
    return log(likely / (1 - likely))


def lift_exchanges(exchanges: Iterable[Sequence[Hit]], lifts: Iterable[float]) -> list[list[Hit]]:
    """The exchanges, best first, after each one's lift was added to the log-odds of its hits."""
    lifted = [
        [replace(hit, score=_raise_odds(hit.score, lift)) for hit in hits]
        for hits, lift in zip(exchanges, lifts, strict=True)
    ]
    return sorted(lifted, key=lambda hits: -hits[0].score)


def _raise_odds(probability: float, lift: float) -> float:
    raised = probability * exp(lift)
    return raised / (1 - probability + raised) if probability < 1 else probability


@cache
def _weights() -> Mapping[str, float]:
    return {name: float(str(value)) for name, value in read_yaml(Path(__file__).with_suffix(".yaml")).items()}
