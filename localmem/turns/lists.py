"""Numbered lists within a text: their items, and which item a question in English names."""

import re
from itertools import pairwise

from localmem.turns.utterances import split_sentences

LAST = -1
_MARK = re.compile(r"(?:(?<=\s)|^)(\d{1,2})[.)]\s+(?=\S)")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_CARDINALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_TIME = (
    r"(?:(?:few|couple of|\d+|two|three|four|five|six)\s+)?(?:time|night|evening|morning|afternoon|day|week|weekend"
    r"|month|year|summer|autumn|fall|winter|spring|session|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february"
    r"|march|april|may|june|july|august|(?:septem|octo|novem|decem)ber|christmas|easter)s?\b"
)
_NAMED = re.compile(
    rf"\b(?:(?P<ordinal>{'|'.join(_ORDINALS)})|(?P<figure>\d{{1,2}})(?:st|nd|rd|th)"
    rf"|(?:number|no\.?)\s*(?P<number>{'|'.join(_CARDINALS)}|\d{{1,2}})"
    rf"|(?P<last>last(?!\s+{_TIME})|final(?=\s+(?:item|one|point|step|tip)s?\b|\W*$)))\b",
    re.IGNORECASE,
)


def split_items(text: str) -> list[tuple[int, str]]:
    """A text's sentences, each with 0, but of a list that counts up from 1 the items, each with its number."""
    marks: list[re.Match[str]] = []
    for mark in _MARK.finditer(text):
        if int(mark[1]) == len(marks) + 1:
            marks.append(mark)
        elif int(mark[1]) == 1 and len(marks) == 1:
            marks = [mark]
    if len(marks) < 2:
        return [(0, sentence) for sentence in split_sentences(text)]
    items = [(int(mark[1]), text[mark.start() : after.start()].strip(" \n,;")) for mark, after in pairwise(marks)]
    final, *rest = split_sentences(text[marks[-1].end() :]) or [""]
    before = split_sentences(text[: marks[0].start()])
    items.append((len(marks), f"{marks[-1][0].strip()} {final}".rstrip()))
    return [*((0, each) for each in before), *items, *((0, each) for each in rest)]


def named_item(question: str) -> int | None:
    """The number of the item that a question names ("the third", "number 3"), LAST for the last one, or None."""
    named = _NAMED.search(question)
    if named is None:
        return None
    if ordinal := named["ordinal"]:
        return _ORDINALS.index(ordinal.lower()) + 1
    if figure := named["figure"]:
        return int(figure)
    if number := named["number"]:
        return int(number) if number.isdigit() else _CARDINALS.index(number.lower()) + 1
    return LAST
