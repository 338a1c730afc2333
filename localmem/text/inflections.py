"""Whether two words are forms of one word: they differ only in an ending of grammar. Knows no dictionary."""

import re
from itertools import takewhile

_SHORTEST = 4  # letters that both have: "there" is no form of "therapy", nor "wins" of "wine"
_ENDINGS = (
    frozenset(["", "s", "es", "e", "ed", "d", "n", "en", "em", "ing", "ings"]),
    frozenset(["a", "o", "i", "u", "e", "as", "os", "es"]),
    frozenset(["y", "ies"]),
)
_OTHER_SCRIPTS = re.compile("[^\\W\\da-z\u1100-\u11ff]{,2}|[\u1100-\u11ff]{,3}")  # the latter: a syllable of Korean


def is_inflection(word: str, other: str) -> bool:
    """Whether two folded words are the same, or forms of one word: boat, boats; plan, planned; therapy, therapies."""
    if word == other:
        return True
    if word[:_SHORTEST] != other[:_SHORTEST]:  # nearly always so, and quick
        return False
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, other, strict=False)))
    endings = {_ending(word, shared), _ending(other, shared)}
    return shared >= _SHORTEST and (
        any(endings <= group for group in _ENDINGS) or all(map(_OTHER_SCRIPTS.fullmatch, endings))
    )


def _ending(word: str, start: int) -> str:
    """What follows the stem, without a last letter of it that is doubled: the "ing" of "planning"."""
    return word[start:].removeprefix(word[start - 1]) if len(word) > start + 2 else word[start:]
