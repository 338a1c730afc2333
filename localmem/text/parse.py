"""What a model wrote, taken apart: sentences out of lists or prose, and strict JSON.

Knows no prompt and no model. Formats are enforced while decoding, so nothing here guesses what broken text meant.
"""

import json
import re
from collections.abc import Iterator, Sequence

from localmem.errors import BadReply

_MARKER = r"\s*(?:[-*+•‣◦–—·]|\(?\d{1,3}[.):]|\(?[a-z]\))"
_BULLET = re.compile(rf"{_MARKER}\s+(?=\S)")
_BARE_MARKER = re.compile(rf"{_MARKER}\s*")
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?:\s+|$)|[。！？]+[」』”’）]*\s*")
_NO_END = re.compile(  # a full stop after these seldom ends a sentence
    r"(?i:\b(?:mr|mrs|ms|dr|prof|st|mt|vs|approx|e\.g|i\.e|cf))\.$|\b(?!I\b)[A-Z]\.$"
)
_QUOTES = {'"': '"', "“": "”", "'": "'", "‘": "’", "*": "*", "_": "_"}


def sentences(text: str) -> list[str]:
    """The sentences of a list (numbered, bulleted) or of prose, clean and in order.

    An item of a list is one sentence, however many full stops it holds, together with the lines that go on with it. A
    line break ends a sentence of prose. Headings and lines that end with a colon are left out, as are lines without a
    letter or digit; markers, emphasis and quotation marks around a whole sentence go, and white space becomes single.
    """
    lines = [line for line in text.splitlines() if not (_is_heading(line) or _BARE_MARKER.fullmatch(line))]
    found = (_clean(piece) for line in _joined(lines) for piece in _pieces(line))
    return [sentence for sentence in found if any(character.isalnum() for character in sentence)]


def json_of(text: str) -> object:
    """The value that a JSON text holds. Raises BadReply when it is no JSON, cut short for example."""
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise BadReply(f"the answer {_excerpt(text)!r} is no JSON ({error}); allow it more tokens") from error
    return value


def _excerpt(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:40]} ... {text[-35:]}"


def _is_heading(line: str) -> bool:
    bare = line.strip().strip("*_").rstrip()
    return bare.startswith("#") or bare.endswith((":", "："))


def _joined(lines: Sequence[str]) -> Iterator[str]:
    """The lines, with what goes on with an item of a list (indented, or after an item without an end) joined to it."""
    item = ""
    for line in lines:
        goes_on = bool(item) and bool(line.strip()) and not _BULLET.match(line)
        if goes_on and (line[0].isspace() or not _END.search(item[-3:])):
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
        if _ends(line, end):
            yield line[start : end.end()]
            start = end.end()
    yield line[start:]


def _ends(line: str, end: re.Match[str]) -> bool:
    return not (line[end.end() : end.end() + 1].islower() or _NO_END.search(line[: end.end()].rstrip()))


def _clean(piece: str) -> str:
    sentence = " ".join(piece.replace("**", "").replace("`", "").split())
    while len(sentence) > 2 and _QUOTES.get(sentence[0]) == sentence[-1] and not _QUOTES.keys() & {*sentence[1:-1]}:
        sentence = sentence[1:-1].strip()
    return sentence
