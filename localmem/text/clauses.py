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
_JOINS = re.compile(r"(?:and|or)\b", re.IGNORECASE)
_SHORT = 2  # words of a clause with "and" or "or" that stays with the one before it

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


def join_lists(sentence: str, clauses: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The clauses, where "and" with one word ("Monday | and Thursday") belongs to the one before it."""
    joined: list[tuple[int, int]] = []
    for begin, end in clauses:
        if joined and _ends_list(sentence[begin:end]):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def _ends_list(clause: str) -> bool:
    return bool(_JOINS.match(clause)) and len(_WORD.findall(_IN_PARENTHESES.sub("", clause))) <= _SHORT


def _may_cut(sentence: str, cut: int) -> bool:
    inside = sentence.count("(", 0, cut) > sentence.count(")", 0, cut)
    return not inside and not sentence[cut:].lstrip().startswith("(")
