"""Long texts in passages, and how many tokens a text has, roughly. Pure functions."""

import re
from math import ceil

PASSAGE = 1200  # characters of a passage, at most

# The places where a passage may end, the best first: paragraphs, lines, sentences, words.
_BREAKS = tuple(map(re.compile, (r"\n\s*\n", r"\n", r"(?<=[.!?…。！？।॥۔])\s*", r"\s+")))
_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")  # scripts with about a token a character
_PIECES = re.compile(r"[^\W\d_]+|\d|[^\w\s]|\n")  # words, digits, signs and ends of lines
# Tokens, counted in English chats: of a piece, and characters a token where words are longer, as in German.
_PIECE = 1.16
_CHARACTERS = 3.4


def split_passages(text: str, limit: int = PASSAGE) -> list[str]:
    """The text in passages of at most `limit` characters, each cut at the best place in its second half."""
    passages = []
    while len(text) > limit:
        end = _best_break(text, limit)
        passages.append(text[:end].strip())
        text = text[end:]
    return [passage for passage in (*passages, text.strip()) if passage]


def _best_break(text: str, limit: int) -> int:
    for pattern in _BREAKS:
        ends = [match.end() for match in pattern.finditer(text, limit // 2, limit + 1) if match.end() <= limit]
        if ends:
            return ends[-1]
    return limit


def estimate_tokens(text: str) -> int:
    """About the tokens of a text in a common vocabulary, for budgets that must not load a tokenizer; seldom too few."""
    plain = _WIDE.sub("", text)
    return len(text) - len(plain) + ceil(max(_PIECE * len(_PIECES.findall(plain)), len(plain) / _CHARACTERS))
