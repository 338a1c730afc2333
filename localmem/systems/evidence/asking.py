"""Asking: whether a turn asks for what the user said, as opposed to a request, a statement or a general question.

Told by its words, and with the vector of a reranker that reads turns. In an elliptical question ("my present wage") no
word asks: it is told from statements and requests by a model of its own. English only. The models stand in asking.yaml,
fitted by `localmem finetune asking`.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from math import inf
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from localmem.files import read_yaml
from localmem.retrieval.base import QueryReader
from localmem.systems.evidence.ranking import log_odds
from localmem.systems.evidence.relevance import Model, describe_request
from localmem.text.provenance import own_words
from localmem.turns.utterances import describe_asking, is_english, is_evidence

_LEAST = 1e-4  # the least probability
_EVEN = 0.5  # the probability of being an elliptical question below which a turn is a statement or a request
# Log-odds by words, and with the vector, from which a turn surely asks. Of 2,161 replies in chats of ten authors
# eight are to such turns, and none of the 125 that questions ask for.
_BY_WORDS, _WITH_VECTOR = 1.0, 0.0


class _Table(BaseModel):
    """The content of asking.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    words: Model
    vectors: Model
    elliptical: Model


def surely_asks(text: str, scorer: object) -> bool:
    """Whether a turn asks for what the user said, so that a reply can only repeat it, or guess.

    False without a `scorer` that is a QueryReader: words alone take requests for advice for such turns. False, too,
    where it speaks of the listener alone ("What got you into running?"): of two people each tells about themselves.
    """
    table, cues = _table(), describe_request(text)
    reads = isinstance(scorer, QueryReader) and scorer.query_identity == table.vectors.reader
    if not reads or (cues["you"] and not cues["self"]):
        return False
    return log_odds_of_asking(text) >= _BY_WORDS and log_odds_of_asking(text, scorer) >= _WITH_VECTOR


def log_odds_of_asking(text: str, scorer: object = None) -> float:
    """The log-odds that a turn asks for what was said, -inf where it surely does not; a `scorer` may be a QueryReader.

    Those are statements, requests, and turns that are not in English.
    """
    text = own_words(text)
    if not is_english(text):
        return -inf
    table, cues, vector = _table(), describe_turn(text), None
    if isinstance(scorer, QueryReader) and scorer.query_identity == table.vectors.reader:
        vector = scorer.read_query(text)
    if vector is not None:
        numbers = vector.tolist()
        may = may_ask(text, cues, numbers, table.elliptical)
        return log_odds(table.vectors.probability(cues, numbers), _LEAST) if may else -inf
    return log_odds(table.words.probability(cues), _LEAST) if cues["asks"] else -inf


def may_ask(text: str, cues: Mapping[str, float], vector: Sequence[float], elliptical: Model) -> bool:
    """Whether a word of a turn asks, or it may be an elliptical question; a command, which tells nothing, is none.

    The `cues` are those of `describe_turn`.
    """
    return bool(cues["asks"]) or (is_evidence(text) and elliptical.probability(cues, vector) >= _EVEN)


def describe_turn(text: str) -> dict[str, float]:
    """The cues of a turn, as the models read them; all those of how it asks are 0 where it asks nothing."""
    asking = describe_asking(text)
    cues = dict.fromkeys(_table().vectors.weights, 0.0) | describe_request(text) | asking
    return {**cues, "asks": float(bool(asking))}


@cache
def _table() -> _Table:
    return _Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))
