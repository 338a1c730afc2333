"""Relevance: whether a request needs memory at all, from a few words of it and the weights in relevance.yaml.

Pure functions of the request alone: the scores of what is found do not tell a general request from a question. Fitted
by `localmem finetune ranking`.
"""

import re
from collections.abc import Mapping
from functools import cache
from math import exp
from pathlib import Path

from pydantic import BaseModel

from localmem.files import read_yaml
from localmem.retrieval.bm25 import words


class Table(BaseModel):
    """The content of relevance.yaml."""

    cues: dict[str, str]
    bias: float
    weights: dict[str, float]


def describe_request(text: str) -> dict[str, float]:
    """Which cues occur in a request: 1 or 0 by name."""
    line = " ".join(words(text))
    return {name: float(bool(cue.search(line))) for name, cue in _cues().items()}


def probability_of_need(text: str) -> float:
    """The probability that a request needs memory."""
    table, cues = _table(), describe_request(text)
    return 1 / (1 + exp(-table.bias - sum(weight * cues[name] for name, weight in table.weights.items())))


@cache
def _table() -> Table:
    return Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))


@cache
def _cues() -> Mapping[str, re.Pattern[str]]:
    return {
        name: re.compile(rf"(?<!\w)(?:{phrases.strip().replace(' | ', '|')})(?!\w)")
        for name, phrases in _table().cues.items()
    }
