"""Quotes: the sentences of what is known, and how a reply quotes them, each with who said it and when.

Does not know how sentences are scored, nor which of them are quoted.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from itertools import takewhile
from math import inf
from typing import NamedTuple

from localmem.systems.evidence.superseding import read_sentence
from localmem.systems.evidence.units import ANSWER, STATEMENT
from localmem.systems.evidence.updates import OMITTED
from localmem.text.dialogue import day
from localmem.text.provenance import origin_of
from localmem.times.annotate import show_times
from localmem.turns.lists import split_items
from localmem.turns.readings import CLOSEST, FIRST_SAID, NOT_KNOWN, NOTED, SAYS
from localmem.turns.utterances import is_correction
from localmem.types import Hit, Unit

_LONGEST = 80  # characters of a turn that are quoted
_LONGEST_LIST = 160  # of one whose list is asked for
_LONGEST_TEXT = 400  # of a reply that is asked for as a text: a poem, a letter
_QUOTE = '{speaker}: "{passage}"'
_DATED_QUOTE = 'On {day} {speaker}: "{passage}"'
_NAMES_DAY = re.compile(r"\([^()]*\d{4}\)")  # as dates are written behind times


class Sentence(NamedTuple):
    """A sentence as it is quoted, the one before it, its hit, its place in a list, and whether it was corrected.

    What corrects the hit's unit may mean another of its sentences.
    """

    text: str
    before: str
    hit: Hit
    item: int
    is_corrected: bool = False

    @property
    def unit(self) -> Unit:
        """What it is a sentence of."""
        return self.hit.unit


class QuoteRequest(NamedTuple):
    """What a question asks a quotation for: a whole list, a day, yes or no, or a text that the assistant wrote."""

    listing: bool
    day: bool
    whether: bool
    text: bool = False


class Candidate(NamedTuple):
    """A sentence, the log-odds by which it is put in order, and those by which it is quoted at all."""

    sentence: Sentence
    rank: float
    sure: float


def read_sentences(hits: Iterable[Hit], today: date) -> Iterator[Sentence]:
    """The sentences of what was recalled, with dates behind times."""
    for hit in hits:
        text = show_times(hit.unit, today).replace(OMITTED, " ")
        before = ""
        is_said = hit.unit.kind in (STATEMENT, ANSWER)
        for item, sentence in split_items((is_said and text.partition(": ")[2]) or text):
            yield Sentence(sentence, before, hit, item)
            before = before if item else sentence  # before each item stands what leads to the list


def is_remainder(sentence: Sentence) -> bool:
    """Whether a sentence is what is left of one, of which a later one replaced the beginning."""
    return OMITTED in sentence.unit.text and sentence.text[:1].islower()


def scored_text(sentence: Sentence) -> str:
    """What the scorer was trained to read."""
    return f"{sentence.unit.speaker}: {sentence.text}" + (f" [{sentence.before}]" if sentence.before else "")


def share_words(first: Sentence, second: Sentence) -> bool:
    """Whether two sentences have a longer word in common, dates behind times aside."""
    words, others = (read_sentence(_NAMES_DAY.sub("", sentence.text)).words for sentence in (first, second))
    return not words.isdisjoint(others)


def quote_turn(turn: Sequence[Candidate], request: QuoteRequest) -> str:
    """The likeliest sentence: an item alone, another with those around it that the length allows, likelier first."""
    first = max(range(len(turn)), key=lambda number: turn[number].rank)
    longest = (_LONGEST_LIST if request.listing else 0) if turn[first].sentence.item else _LONGEST
    longest = _LONGEST_TEXT if wants_text(turn, request) else longest
    return quote_passage(choose_passage(turn, first, longest), request)


def choose_passage(turn: Sequence[Candidate], first: int, longest: int) -> Sequence[Candidate]:
    """The sentence of that number and those around it that the length allows, likelier first, and what corrects it."""
    last, length = first, len(turn[first].sentence.text)
    while True:
        beside = [number for number in (first - 1, last + 1) if 0 <= number < len(turn)]
        current = [number for number in beside if turn[number].rank > -inf]
        fitting = [number for number in current if length + 1 + len(turn[number].sentence.text) <= longest]
        if not fitting:
            break
        best = max(fitting, key=lambda number: turn[number].rank)
        length += 1 + len(turn[best].sentence.text)
        first, last = min(first, best), max(last, best)
    return [*turn[first : last + 1], *find_corrections(turn, last)]


def find_corrections(turn: Sequence[Candidate], number: int) -> Sequence[Candidate]:
    """The sentences right after one that correct it: "I was mistaken: ...", and no more."""
    following = takewhile(lambda each: each.rank > -inf and is_correction(each.sentence.text), turn[number + 1 :])
    return [] if turn[number].sentence.item else list(following)


def wants_text(turn: Sequence[Candidate], request: QuoteRequest) -> bool:
    """Whether a turn is quoted as a whole, as a poem that the assistant wrote."""
    return request.text and turn[0].sentence.unit.kind == ANSWER


def quote_passage(passage: Sequence[Candidate], request: QuoteRequest) -> str:
    """The sentences as a quotation with the speaker, and with its day unless a day is asked for that they name."""
    unit = passage[0].sentence.unit
    text = " ".join(each.sentence.text for each in passage)
    text = (text.strip('"') if text.count('"') % 2 else text).replace('"', "'")  # of a quotation in part, one mark
    speaker = FIRST_SAID if any(each.sentence.is_corrected for each in passage) else SAYS.get(origin_of(unit), NOTED)
    if request.day and _NAMES_DAY.search(text):
        return _QUOTE.format(speaker=speaker[0].upper() + speaker[1:], passage=text)
    return _DATED_QUOTE.format(day=day(unit.time), speaker=speaker, passage=text)


def as_closest(quotation: str) -> str:
    """What is quoted where it is less likely to be the answer."""
    return f"{CLOSEST}\n{quotation}" if "\n" in quotation else f"{CLOSEST} {quotation}"


def as_unlikely(quotation: str) -> str:
    """What is quoted where it is unlikely to be the answer."""
    return f"{NOT_KNOWN} {as_closest(quotation)}"
