"""Lists within a text, numbered or in a sentence: their items, and which item a question in English names."""

import re
from itertools import pairwise

from localmem.text.parse import words
from localmem.turns.utterances import split_sentences

MIDDLE = 0
LAST = -1
_MARK = re.compile(r"(?:(?<=\s)|^)(\d{1,2})[.)]\s+(?=\S)")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_CARDINALS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_TIME = (
    r"(?:(?:few|couple of|\d+|two|three|four|five|six)\s+)?(?:time|night|evening|morning|afternoon|day|week|weekend"
    r"|month|year|summer|autumn|fall|winter|spring|session|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february"
    r"|march|april|may|june|july|august|(?:septem|octo|novem|decem)ber|christmas|easter)s?\b"
)
_QUOTED = re.compile(r"(?<!\w)(?:'[^']+'|\"[^\"]+\"|‘[^’]+’|“[^”]+”)(?!\w)")
_COMMAS = re.compile(r"[,;]\s+(?:(?:and|or)\s+)?|\s+(?:and|or)\s+(?=[^,;]*$)")
_NAMED = re.compile(
    rf"\b(?:(?P<before>(?:(?!{_TIME})\w+ before (?:the )?last|last but one|(?:second|next)[- ](?:to[- ])?last"
    rf"|penultimate)(?!\s+{_TIME}))|(?P<ordinal>{'|'.join(_ORDINALS)})|(?P<figure>\d{{1,2}})(?:st|nd|rd|th)"
    rf"|(?:number|no\.?)\s*(?P<number>{'|'.join(_CARDINALS)}|\d{{1,2}})|(?P<middle>middle(?! of| name|[- ]aged?\b))"
    rf"|(?P<last>(?<!before )last(?!\s+{_TIME})|final(?=\s+(?:item|one|point|step|tip)s?\b|\W*$)))\b",
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
    final, *after_list = split_sentences(text[marks[-1].end() :]) or [""]
    before = split_sentences(text[: marks[0].start()])
    items.append((len(marks), f"{marks[-1][0].strip()} {final}".rstrip()))
    return [*((0, each) for each in before), *items, *((0, each) for each in after_list)]


def named_item(question: str) -> int | None:
    """The number of the item that a question names ("the third", "number 3"), from the end below 0, MIDDLE, or None."""
    named = _NAMED.search(question)
    if named is None:
        return None
    if ordinal := named["ordinal"]:
        return _ORDINALS.index(ordinal.lower()) + 1
    if figure := named["figure"]:
        return int(figure)
    if number := named["number"]:
        return int(number) if number.isdigit() else _CARDINALS.index(number.lower()) + 1
    return LAST - 1 if named["before"] else MIDDLE if named["middle"] else LAST


def place_in(count: int, number: int) -> int:
    """The place, from 1, of the item of that number in a list of so many; 0 where it has none."""
    if number == MIDDLE:
        return count // 2 + 1 if count % 2 else 0
    place = number if number > 0 else count + 1 + number
    return place if 0 < place <= count else 0


def find_enumerated(question: str, sentence: str) -> str:
    """What a question names by its number of what a sentence lists ("the second name", of "Names: Rex, Max"), or "".

    Nothing where it is the list that has the number ("the first rota", of "House rota: Ana bins, Ben floors").
    """
    named, number, listed = _NAMED.search(question), named_item(question), _split_enumeration(sentence)
    place = 0 if number is None else place_in(len(listed), number)
    if named is None or not place:
        return ""
    noun = words(question[named.end() :])[:1]
    is_whole = noun and noun == words(sentence.partition(": ")[0])[-1:]
    return "" if is_whole else listed[place - 1]


def _split_enumeration(sentence: str) -> list[str]:
    """The quoted names of a sentence, or the parts of what it lists behind a colon; none of any other sentence."""
    quoted = [match[0] for match in _QUOTED.finditer(sentence)]
    if len(quoted) > 1:
        return quoted
    parts = [part.strip(" .!") for part in _COMMAS.split(sentence.partition(": ")[2])]
    return parts if len(parts) > 2 else []
