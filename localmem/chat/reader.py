"""Reader: answers a question about the user by quoting what was said, for backbones too small to read it well.

A reranker that was trained on sentences says how likely each is to answer, of what was recalled and of the dialogue at
hand. The likeliest are quoted with day and speaker, or what was worked out is given. Where none is likely the reader
says so, if the turn surely asks for what the user said, and quotes the closest; any other turn is the backbone's. That
is told by words alone, and in English only. Writes nothing and asks no backbone.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from math import inf
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from localmem.files import read_yaml
from localmem.retrieval.base import Reranker
from localmem.systems.evidence.ranking import log_odds
from localmem.systems.evidence.relevance import describe_request
from localmem.systems.evidence.units import STATEMENT, is_new, places, turn_units
from localmem.text.dialogue import day
from localmem.text.utterances import asks_about_replies, describe_asking, is_english, split_sentences
from localmem.times.annotate import show_times, with_spans
from localmem.types import Hit, Recall, Session, Unit, Working

NOT_KNOWN = "You haven't told me that."
_CLOSEST = "You haven't told me that, only this: "
_QUOTED = 3  # sentences
_QUOTE = 'On {day} {speaker} said: "{sentence}"'
_LEAST = 1e-4  # the least probability of a score
_EVEN = 0.5  # the probability of a unit that no search has ranked
_IN_SIGHT = 40  # turns of the dialogue that are read, the last ones


class _Table(BaseModel):
    """The content of reader.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bias: float
    weights: Mapping[str, float]
    asks: float
    surely_asks: float
    quoted: float
    closest: float
    place: float
    sure_place: float
    beside: float


class _Sentence(NamedTuple):
    """A sentence of a unit as it is quoted, the one before it, and the probability of its unit."""

    text: str
    before: str
    unit: Unit
    likely: float


class Reader:
    """Reads the turns that `evidence` keeps with one scorer of sentences; for many threads."""

    def __init__(self, scorer: Reranker) -> None:
        self._scorer = scorer

    def reply(self, dialogue: Session, recall: Recall, hidden: Container[str] = ()) -> str:
        """The reply to the dialogue's last turn, "" where it is left to the backbone. `hidden` turns are not quoted."""
        question, today = dialogue.turns[-1].text, dialogue.turns[-1].time.date()
        table, asks = _table(), log_odds_of_asking(question)
        if asks < table.asks:
            return ""
        if recall.workings:
            return _say_working(recall.workings[0])
        sentences = list(_sentences([*recall.hits, *_hits_in_sight(dialogue, hidden)], today))
        scores = self._scorer.score(question, [_scored_text(sentence) for sentence in sentences])
        odds = [log_odds(score, _LEAST) for score in scores]
        unit_odds = [log_odds(sentence.likely, _LEAST) for sentence in sentences]
        ranks = [own + table.place * unit for own, unit in zip(odds, unit_odds, strict=True)]
        order = sorted(range(len(ranks)), key=lambda number: -ranks[number])
        sure = max((own + table.sure_place * unit for own, unit in zip(odds, unit_odds, strict=True)), default=-inf)
        if sure >= table.quoted:
            least = ranks[order[0]] - table.beside
            return _quote([sentences[number] for number in order[:_QUOTED] if ranks[number] >= least])
        if asks < table.surely_asks or not describe_request(question)["self"]:
            return ""
        return f"{_CLOSEST}{_quote([sentences[order[0]]])}" if sure >= table.closest else NOT_KNOWN


def _quote(sentences: Sequence[_Sentence]) -> str:
    return "\n".join(
        _QUOTE.format(
            day=day(sentence.unit.time),
            speaker="you" if sentence.unit.kind == STATEMENT else "I",
            sentence=sentence.text.replace('"', "'"),
        )
        for sentence in sentences
    )


def log_odds_of_asking(text: str) -> float:
    """The log-odds that a turn asks for what was said, as opposed to a request, a statement or a general question."""
    asking = describe_asking(text)
    if not asking or not is_english(text):
        return float("-inf")
    cues = describe_request(text) | asking
    return _table().bias + sum(weight * cues[name] for name, weight in _table().weights.items())


def _hits_in_sight(dialogue: Session, hidden: Container[str]) -> list[Hit]:
    """What the user said in the dialogue itself, which no search returns, and the replies, if they are asked for."""
    sides = ("user", "assistant") if asks_about_replies(dialogue.turns[-1].text) else ("user",)
    earlier = [place for place in places(dialogue)[-_IN_SIGHT - 1 : -1] if place.turn.role in sides]
    units = [
        unit
        for place in earlier
        if place.turn.id not in hidden and is_new(place, ())
        for unit in turn_units(dialogue.id, place)
    ]
    return [Hit(unit, _EVEN) for unit in with_spans(units, dialogue.turns, None)]


def _sentences(hits: Iterable[Hit], today: date) -> Iterator[_Sentence]:
    for hit in hits:
        text = show_times(hit.unit, today)
        before = ""
        for sentence in split_sentences(text.partition(": ")[2] or text):
            yield _Sentence(sentence, before, hit.unit, hit.score)
            before = sentence


def _scored_text(sentence: _Sentence) -> str:
    """What the scorer was trained to read."""
    return f"{sentence.unit.speaker}: {sentence.text}" + (f" [{sentence.before}]" if sentence.before else "")


def _say_working(working: Working) -> str:
    return working.text[:1].upper() + working.text[1:].rstrip(".") + "."


@cache
def _table() -> _Table:
    return _Table.model_validate(read_yaml(Path(__file__).with_suffix(".yaml")))
