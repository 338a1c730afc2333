"""Where a sentence of English can be cut: behind punctuation, and before words that join what is said.

People who type or dictate put several things into a sentence, often without punctuation. What stands in parentheses
stays with the words before it. Knows no model.
"""

import re

_BEHIND = re.compile(r"[,;:–—]+(?=\s)|\s-+(?=\s)|\)(?=\s)")
_BEFORE = re.compile(
    r"\s(?=(?:and|but|so|because|cos|cuz|since|while|who|which|when|if|or|not|no|instead|now|then|than|though|although|"
    r"plus|after|before|until|till|from|to)\b)",
    re.IGNORECASE,
)


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


def _may_cut(sentence: str, cut: int) -> bool:
    inside = sentence.count("(", 0, cut) > sentence.count(")", 0, cut)
    return not inside and not sentence[cut:].lstrip().startswith("(")
