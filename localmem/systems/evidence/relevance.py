"""Relevance: whether a request needs memory at all, from a few words of it, its vector, and the weights in a file.

Functions of the request alone: the scores of what is found do not tell a general request from a question. The vector
comes from a reranker that reads requests; without one the words decide. In other languages than English a few kinds of
request need none, by the phrases of `utterances`; for any other memory is shown. Fitted by `localmem finetune ranking`.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from math import exp
from pathlib import Path

from pydantic import BaseModel

from localmem.files import read_yaml
from localmem.retrieval.base import QueryReader
from localmem.retrieval.bm25 import words
from localmem.turns.utterances import needs_no_memory

SCALE = 6.0  # of a vector beside the cues: its numbers are small
PRECISION = 1000  # weights of vectors are stored as whole numbers of its inverse


class Model(BaseModel):
    """Of the log-odds that a request needs memory: the bias and the weights of its cues and of its vector.

    `reader` is the identity of the reader that the vectors come from.
    """

    bias: float
    weights: dict[str, float] = {}
    reader: str = ""
    vector: tuple[int, ...] = ()

    def probability(self, cues: Mapping[str, float], vector: Sequence[float] = ()) -> float:
        """The probability that a request with these cues and this vector needs memory."""
        numbers = sum(weight * value for weight, value in zip(self.vector, vector, strict=True)) * SCALE / PRECISION
        return 1 / (1 + exp(-self.bias - numbers - sum(weight * cues[name] for name, weight in self.weights.items())))


class Table(BaseModel):
    """The content of relevance.yaml: the cues, and the models by the words alone and with the vector."""

    cues: dict[str, str]
    words: Model
    vectors: Model


def describe_request(text: str) -> dict[str, float]:
    """Which cues occur in a request: 1 or 0 by name."""
    line = " ".join(words(text))
    return {name: float(bool(cue.search(line))) for name, cue in _cues().items()}


def probability_of_need(text: str, reader: object = None) -> float:
    """The probability that a request needs memory; `reader` may be a QueryReader."""
    if needs_no_memory(text):
        return 0.0
    table, cues = _table(), describe_request(text)
    if isinstance(reader, QueryReader) and reader.query_identity == table.vectors.reader:
        vector = reader.read_query(text)
        return table.words.probability(cues) if vector is None else table.vectors.probability(cues, vector.tolist())
    return table.words.probability(cues)


@cache
def _table() -> Table:
    return Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))


@cache
def _cues() -> Mapping[str, re.Pattern[str]]:
    return {
        name: re.compile(rf"(?<!\w)(?:{phrases.strip().replace(' | ', '|')})(?!\w)")
        for name, phrases in _table().cues.items()
    }
