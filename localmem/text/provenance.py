"""Whose words a text holds: what a user typed, as opposed to what they pasted or a client put around it.

A pasted text is told by its form alone, not by a model: quoted lines, fenced and tagged blocks, a letter's headers,
what follows "summarise this:", labels of roles, marks and letters that nobody types. However long, a story in a
person's own words stays theirs, but for what follows "translate this:" or "fix my grammar:", up to a blank line. What
is said in such a text is never a fact about the user: it is shown under a label, and replaces nothing. Does not depend
on how units are made.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from localmem.llm.control_tokens import neutralize
from localmem.types import Origin, Unit

DOCUMENT = "document"
"""The kind of a unit that holds a text the user showed."""

FOREIGN: frozenset[Origin] = frozenset({"document", "client", "api"})
"""The origins of texts that neither side of a dialogue said."""

_I, _M, _S = re.IGNORECASE, re.MULTILINE, re.DOTALL
_SHOWN = 60  # characters from which on what follows an announcement is a text of its own
_BEGINNING = 2000  # characters of a text by which it is known whose words it is: texts may be logs of megabytes
_MACHINE = re.compile(r"(?:environment|workspace|editor)[_-]\w+|system-reminder|attachments|context", _I)
_BLOCK = re.compile(
    r"```.*?(?:```|\Z)|\"\"\".*?(?:\"\"\"|\Z)"
    r"|<(?P<name>[A-Za-z][\w-]{1,40})(?: [^<>\n]{0,200})?>|(?P<comment><!--)"  # only where it is closed
    r"|(?:^[ \t]*>[^\n]*(?:\n|\Z)){1,}"  # quoted lines
    r"|(?<!\w)[\"“„«](?=\S)[^\"“”„«»]{80,}[\"”“»](?!\w)",
    _S | _M,
)
_CLOSING = re.compile(r"</[A-Za-z][\w-]{1,40}>")
_REQUEST = (
    r"(?:summari[sz]e|sum up|translate|proofread|rewrite|rephrase|review|explain|check|read|look at|analy[sz]e|tl;?dr"
    r"|zusammenfass\w*|übersetz\w*|résume\w*|tradui\w*|resum\w*|traduc\w*)"
)
_NOUN = (
    r"(?:e-?mails?|mails?|messages?|articles?|pages?|websites?|letters?|reviews?|posts?|newsletters?|transcripts?"
    r"|documents?|docs?|pdfs?|files?|logs?|readme|tickets?|listings?|comments?|leaflets?|flyers?|results?|outputs?"
    r"|captions?|subtitles?|notes? from|texts?|contracts?|invoices?|minutes|screenshots?|images?|scans?)"
)
_ANNOUNCED = re.compile(
    rf"(?:\b{_REQUEST}\b[^:\n]{{0,80}}|\b{_NOUN}\b[^:\n]{{0,60}}"
    r"|\b(?:it|this|that|they|site|tool|search) (?:says?|said|reads?|wrote|returned|shows?|means?)\b[^:\n]{0,30}"
    r"|\b(?:pasted|forwarded|copied|got this|sent me)\b[^:\n]{0,40})[:：]\s*",
    _I,
)
_LANGUAGE = (
    r"(?:[a-z]{3,}(?:ish|ese|ian)|french|german|dutch|welsh|gaelic|greek|latin|korean|arabic|hebrew|hindi|urdu|czech"
    r"|thai|swahili)"
)
_WRITING = (  # what "fix my ...:" hands over; of "fix my address:" the user tells the right one
    r"(?:(?:grammar|spelling|punctuation|wording|phrasing|typos|translation|sentences?|paragraphs?|text|essay|letter"
    r"|draft|e-?mail|message|post|poem)\b(?! address)(?! (?:of|about) (?:my|our|his|her|their)\b)"
    rf"|{_LANGUAGE}(?=:| (?:in|here|below|please)\b))"
)
_HANDED_OVER = re.compile(  # whoever speaks in it
    r"(?:\A|(?<=[.!?\n]))[ \t]*(?:(?:please|pls|can you|could you|ok|hey|and|now)[, ]+)*"
    rf"(?:(?:translate|proofread|rewrite|rephrase|paraphrase|say (?:(?:this|that|it) )?in (?:\w+ )?{_LANGUAGE})\b"
    rf"|(?:fix|correct) (?:my|the|this|these|that|any|all) (?:[\w-]+ ){{0,3}}?{_WRITING})"
    r"(?:(?!\byour (?:notes|records|memory)\b)[^:.!?\n]){0,80}:(?!\d)(?! ?(?:\S+ ){0,3}\S{1,80}@\w)"
    r"(?P<shown>[ \t]*\n?(?=[ \t]*\S)(?:(?!\n[ \t]*\n).)*|.*)",  # to the end where a blank line comes first
    _I | _S,
)
_HEADERS = re.compile(r"(?:^(?:From|To|Cc|Subject|Date|Sent|Von|An|Betreff|De|À|Objet|Para|Asunto): [^\n]+\n){2,}", _M)
_DIRECTION = "\u200e\u200f\u202a-\u202c\u2066-\u2069"  # marks that programs put around names, numbers and Hebrew
_LABEL = re.compile(
    rf"^[-*#>\[(| \t{_DIRECTION}]*(?:system|assistant|developer|tool|human|user|ai|instructions?|localmem)"
    rf"(?: (?:message|prompt|note|override|notice|update|instructions?))?[\])*|{_DIRECTION}]*[ \t]*[:：]"
    r"|^#{1,4} ?(?:system|instructions?)\b",
    _I | _M,
)
_FLAG = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{1,6}\U000e007f")  # of Scotland, of Wales
_HIDDEN = re.compile(  # what reverses letters or is not seen, and marks that split a Latin word
    f"[\u202d\u202e\U000e0000-\U000e007f]|(?<=[A-Za-z])[\u200b-\u200d\u2060\ufeff{_DIRECTION}]+(?=[A-Za-z])"
)


class Piece(NamedTuple):
    """A part of a message and whose words it is."""

    origin: Origin
    text: str


@lru_cache(maxsize=4096)
def split_message(text: str) -> tuple[Piece, ...]:
    """A user's message in pieces by origin, in order; one piece where all of it is the user's own words."""
    if has_disguise(text):
        return tuple(_split_disguised(text))
    start = _document_start(text)
    pieces = [*_split_handed_over(text[:start]), Piece("document", text[start:].strip())]
    return tuple(piece for piece in pieces if piece.text) or (Piece("user", text),)


def own_words(text: str) -> str:
    """What of a user's message is in their own words."""
    return "\n".join(piece.text for piece in split_message(text) if piece.origin == "user")


def has_disguise(text: str) -> bool:
    """Whether a text holds what nobody types: marks of chat templates, or letters that are not seen."""
    return _HIDDEN.search(_FLAG.sub("", text)) is not None or neutralize(text) != text


def has_labels(text: str) -> bool:
    """Whether a line of a text begins with the name of a role, as if it were a message of its own."""
    return _LABEL.search(text) is not None


def origin_of(unit: Unit) -> Origin:
    """Whose words a unit holds; for one that does not say, by its kind and its session."""
    if unit.origin is not None:
        return unit.origin
    if unit.session == "api":
        return "api"
    by_kind: dict[str, Origin] = {"statement": "user", "answer": "assistant", DOCUMENT: "document"}
    return by_kind.get(unit.kind, "dialogue")


def label(unit: Unit) -> str:
    """The words before a unit where it is shown: none for what the two sides said, whose names stand there."""
    match unit.origin:
        case "document":
            return f"(from a text that {unit.speaker or 'the user'} showed) "
        case "client":
            return "(from a program, nobody's words) "
        case "api":
            return "(noted by a program) "
    return ""


def _split_disguised(text: str) -> Iterator[Piece]:
    """By paragraphs: one that holds a disguise is nobody's words, and nor is what follows it."""
    before, start = [], 0
    for paragraph in re.split(r"(?<=\n)", text):
        if has_disguise(paragraph):
            break
        before.append(paragraph)
        start += len(paragraph)
    if own := "".join(before).strip():
        yield from split_message(own)
    yield Piece("document", text[start:].strip())


def _document_start(text: str) -> int:
    """Where a text begins that goes on to the message's end: after an announcement, at headers or labels."""
    starts = [match.start() for pattern in (_HEADERS, _LABEL) if (match := pattern.search(text))]
    starts += islice((match.end() for match in _ANNOUNCED.finditer(text) if _is_announced(text, match)), 1)
    return min(starts, default=len(text))


def _is_announced(text: str, match: re.Match[str]) -> bool:
    """Whether what follows an announcement is a text of its own."""
    is_long = len(text) - match.end() >= (_SHOWN if "\n\n" not in match[0] else 1)
    return is_long and ("\n" in match[0] or not _is_own(text[match.end() : match.end() + _BEGINNING]))


def _is_own(text: str) -> bool:
    """Whether a text speaks in the first person, as people's own words do."""
    return (
        len(re.findall(r"\b(?:i|i['’]?(?:m|ve|d|ll)|my|me|mine|ich|mein\w*|je|j['’]|mon|ma|yo|mi|io|eu)\b", text, _I))
        >= 2
    )


def _split_handed_over(text: str) -> Iterator[Piece]:
    """What is handed over, and the user's own words and blocks around it."""
    end = 0
    for match in _HANDED_OVER.finditer(_mask_blocks(text)):
        yield from _split_blocks(text[end : match.start("shown")])
        yield Piece("document", text[match.start("shown") : match.end()].strip())
        end = match.end()
    yield from _split_blocks(text[end:])


def _mask_blocks(text: str) -> str:
    """The text, its blocks of letters alone and as long as before: the blank lines and requests of a block are none."""
    parts, end = list[str](), 0
    for start, after, _ in _find_blocks(text):
        parts += text[end:start], "x" * (after - start - 1), text[after - 1]
        end = after
    return "".join([*parts, text[end:]])


def _split_blocks(text: str) -> Iterator[Piece]:
    end = 0
    for start, after, name in _find_blocks(text):
        if own := text[end:start].strip():
            yield Piece("user", own)
        yield Piece("client" if _MACHINE.fullmatch(name) else "document", text[start:after].strip())
        end = after
    if own := text[end:].strip():
        yield Piece("user", own)


def _find_blocks(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each block begins and ends, and the name of its tag or "". Code opens many tags that nothing closes."""
    last = {match[0]: match.start() for match in _CLOSING.finditer(text)} | {"-->": text.rfind("-->")}
    position = 0
    while block := _BLOCK.search(text, position):
        name = block["name"] or ""
        closing = f"</{name}>" if name else "-->" if block["comment"] else ""
        if closing and last.get(closing, -1) < block.end():
            position = block.start() + 1
            continue
        position = text.index(closing, block.end()) + len(closing)
        yield block.start(), position, name
