"""Sentences out of a model's free text (numbered lists, bullets or prose), and the words of any text.

Pure functions; they do not depend on any prompt or model.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence

from localmem.types import Completion

_MARKER = r"\s*(?:[-*+•‣◦–—·]|\(?\d{1,3}[.):]|\(?[a-z]\))"
_BULLET = re.compile(rf"{_MARKER}\s+(?=\S)")
_BARE_MARKER = re.compile(rf"{_MARKER}\s*")
_END = re.compile(r"[.!?…।॥۔]+[\"'”’)\]]*(?:\s+|$)|[。！？]+[」』”’）]*\s*")
_NO_END = re.compile(  # abbreviations and initials: a full stop after them seldom ends a sentence
    r"(?i:\b(?:mr|mrs|ms|dr|prof|st|mt|vs|approx|e\.g|i\.e|cf))\.$|\b(?!I\b)[A-Z]\.$"
)
_BEFORE_STOP = 12  # characters that such an abbreviation may have, and white space
_SPACELESS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_QUOTES = {'"': '"', "“": "”", "'": "'", "‘": "’", "*": "*", "_": "_"}


def sentences(text: str) -> list[str]:
    """The sentences of a list (numbered, bulleted) or of prose, clean and in order.

    An item of a list is one sentence, however many full stops it holds, together with its continuation lines. A line
    break ends a sentence of prose. Dropped are headings, lines that end with a colon and lines without a letter or
    digit; list markers, emphasis and quotation marks around a whole sentence are removed, and spaces made single.
    """
    lines = [line for line in text.splitlines() if not (_is_heading(line) or _BARE_MARKER.fullmatch(line))]
    cleaned = (_clean(piece) for line in _join_items(lines) for piece in _pieces(line))
    return [sentence for sentence in cleaned if any(character.isalnum() for character in sentence)]


def complete_sentences(completion: Completion, *, at_least_one: bool = False) -> list[str]:
    """The sentences of a free-text answer, without the last one when the answer was cut off at its token limit.

    With `at_least_one`, a sentence that was cut off is still returned when it is the only one.
    """
    complete = sentences(completion.text)
    if completion.finish == "length":
        return complete[:-1] or (complete if at_least_one else [])
    return complete


def _is_heading(line: str) -> bool:
    bare = line.strip().strip("*_").rstrip()
    return bare.startswith("#") or bare.endswith((":", "："))


def _join_items(lines: Sequence[str]) -> Iterator[str]:
    """The lines, with the continuation lines of a list item (indented, or after an item without a full stop) joined."""
    item = ""
    for line in lines:
        continues = bool(item) and bool(line.strip()) and not _BULLET.match(line)
        if continues and (line[0].isspace() or not _END.search(item[-3:])):
            item = f"{item} {line.strip()}"
            continue
        if item:
            yield item
        item = line if _BULLET.match(line) else ""
        if not item:
            yield line
    if item:
        yield item


def _pieces(line: str) -> Iterator[str]:
    """An item of a list whole, without its marker; prose cut where its sentences end."""
    marker = _BULLET.match(line)
    if marker:
        yield line[marker.end() :]
        return
    start = 0
    for end in _END.finditer(line):
        before = line[max(start, end.end() - _BEFORE_STOP) : end.end()].rstrip()
        if not (line[end.end() : end.end() + 1].islower() or _NO_END.search(before)):
            yield line[start : end.end()]
            start = end.end()
    yield line[start:]


def _clean(piece: str) -> str:
    sentence = " ".join(piece.replace("**", "").replace("`", "").split())
    while len(sentence) > 2 and _QUOTES.get(sentence[0]) == sentence[-1] and not _QUOTES.keys() & {*sentence[1:-1]}:
        sentence = sentence[1:-1].strip()
    return sentence


def fold(word: str) -> str:
    """A word in lower case, without accents and without an English genitive."""
    bare = word.casefold().replace("’", "'").removesuffix("'s").removesuffix("'")
    if bare.isascii():
        return bare
    plain = unicodedata.normalize("NFKD", bare)
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


def words(text: str) -> list[str]:
    """The words of a text, folded; a character of a language that writes no spaces is a word."""
    return [fold(match) for match in re.findall(r"[^\W_]+(?:['’][^\W\d_]+)*", space_characters(text))]


def space_characters(text: str) -> str:
    """The text with blanks around each character of a language that writes no spaces."""
    return _SPACELESS.sub(r" \g<0> ", text)
