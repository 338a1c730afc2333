"""Where a sentence of English can be cut: behind punctuation, and before words that join what is said.

People who type or dictate put several things into a sentence, often without punctuation. What stands in parentheses
stays with the words before it. Knows no model.
"""

import re
from collections.abc import Sequence

_BEHIND = re.compile(r"[,;:–—]+(?=\s)|\s-+(?=\s)|\)(?=\s)")
_BEFORE = re.compile(
    r"\s(?=(?:and|but|so|because|cos|cuz|since|while|who|which|when|if|or|not|no|instead|now|then|than|though|although|"
    r"plus|after|before|until|till|from|to)\b)",
    re.IGNORECASE,
)
_IN_PARENTHESES = re.compile(r"\([^()]*\)")
_WORD = re.compile(r"[\w'’.-]*\w")
_JOINS = re.compile(r"(?:and|or|at|in|on|by|for|with)\b", re.IGNORECASE)
_GOES_ON = re.compile(r"(?:to|from)\b", re.IGNORECASE)
_FROM = re.compile(r"\bfrom\b", re.IGNORECASE)
_ALONE = re.compile(r"(?:(?:and|but|so|or|not|no|because|since|while|when|if)\s*)+", re.IGNORECASE)
_ENDS = re.compile(r"(?:now|then|before|after|instead|since|though|not|no more|as well|too)\b[,.;:!]*", re.IGNORECASE)
_CONTRAST = re.compile(r"\b(?:no|not|sorry|wait|mean|meant|instead|but)\b", re.IGNORECASE)
_BETWEEN = re.compile(r"\s(?:and|or)\s", re.IGNORECASE)
_ITEM = 3  # words of an item of a list
_SHORT = 2  # words of a clause with "and" or "at" that stays with the one before it

CUT = "…"  # stands in a quotation for the clauses that are left out


def split_clauses(sentence: str) -> list[tuple[int, int]]:
    """Where each clause begins and ends, in characters, without the spaces around it."""
    cuts = {match.end() for pattern in (_BEHIND, _BEFORE) for match in pattern.finditer(sentence)}
    cuts = {cut for cut in cuts if _may_cut(sentence, cut)}
    ends = [*sorted(cuts - {0, len(sentence)}), len(sentence)]
    pieces = ((start, end, sentence[start:end]) for start, end in zip([0, *ends], ends, strict=False))
    return [
        (start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip()))
        for start, end, piece in pieces
        if piece.strip()
    ]


def join_clauses(sentence: str, clauses: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The clauses, where those that say nothing by themselves belong to one beside them.

    Those are "and" or "at" with one word ("Tea | and rum"), what goes on with "to" or "from" ("moved | to York")
    unless it follows "from", and a joining word alone ("not | but tea", "I had 12 | before."). A list of short
    items is one.
    """
    joined: list[tuple[int, int]] = []
    for begin, end in clauses:
        if joined and _belongs_to_last(sentence[slice(*joined[-1])], sentence[begin:end]):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return _join_items(sentence, joined)


def begins_contrast(clause: str) -> bool:
    """Whether a clause begins by taking back or denying what is said before it: "no sorry 4B"."""
    return _CONTRAST.match(clause) is not None


def _belongs_to_last(last: str, clause: str) -> bool:
    if _ALONE.fullmatch(last):
        return True
    if _GOES_ON.match(clause):
        return not (clause[:2].lower() == "to" and _FROM.search(last))
    is_short = len(_WORD.findall(_IN_PARENTHESES.sub("", clause))) <= _SHORT
    return bool((_JOINS.match(clause) and is_short) or _ENDS.fullmatch(clause))


def _join_items(sentence: str, clauses: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The clauses, where two or more short ones in a row that follow a comma belong to the one before them."""
    if _CONTRAST.search(sentence):
        return list(clauses)
    texts = [sentence[begin:end] for begin, end in clauses]
    are_items = [
        number > 0 and texts[number - 1].endswith((",", ":")) and all(map(_is_short_item, _BETWEEN.split(text)))
        for number, text in enumerate(texts)
    ]
    joined: list[tuple[int, int]] = []
    for number, (begin, end) in enumerate(clauses):
        beside = [other for other in (number - 1, number + 1) if other < len(texts)]
        if are_items[number] and any(are_items[other] for other in beside):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def _is_short_item(text: str) -> bool:
    return len(_WORD.findall(text)) <= _ITEM


def _may_cut(sentence: str, cut: int) -> bool:
    inside = sentence.count("(", 0, cut) > sentence.count(")", 0, cut)
    return not inside and not sentence[cut:].lstrip().startswith("(")
