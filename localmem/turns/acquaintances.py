"""Acquaintances: whether a question names somebody of whom the user has told, by how statements speak of the name.

"Ana says", "my cousin Ana" and "Ana, who sells bread" tell of a person; "in Leeds" and "a Fiat" do not. Decided by
English words alone: what is missed counts as unknown. No model; pure functions.
"""

import re
from collections.abc import Iterable
from functools import cache

from localmem.retrieval.languages import frequent_words
from localmem.turns.subjects import KIN

_WORD = re.compile(r"(?<!\ba )(?<!\ban )(?<!\bthe )\b[^\W\d_][\w'’]{2,}", re.IGNORECASE)
_POSSESSIVE = re.compile(r"['’]s?$")
# May stand where a name could, in front of "says" and "wants".
_NOUN = re.compile(
    rf"{KIN}|people|every(?:one|body|thing)|some(?:one|body|thing)|any(?:one|body|thing)|nobody|nothing|folks|guys"
    r"|boss|manager|landlord|landlady|teacher|tutor|coach|doctor|dentist|nurse|vet|police|weather|work|school|uni"
    r"|university|college|council|bank|insurance|hospital|company|club|team|office|government|month|week|year|day"
    r"|dogs?|cats?|pupp(?:y|ies)|kittens?|customers|clients|students|viewers",
    re.IGNORECASE,
)
_ACTS = (
    r"(?:says?|said|told|tells|asks|asked|wants?|wanted|thinks|thought|called|rang|texted|wrote|came|comes|lives|works"
    r"|moved|bought|brought|gave|gives|loves|hates|likes|went|goes|quit|laughed|cried|snores|knows|knew|studies|turned"
    r"|took|takes|paid|pays|sent|helped|helps|brings|lent|sold|married"
    r"|is (?:my|our|his|her|from|coming|going|getting|moving|\d+)|has (?:her|his|two|three|got|been)"
    r"|got (?:married|engaged|her|his)|will (?:come|be|visit|go|take|give|help|call|bring|do|get|have))"
)
_CLAUSE_BEGINS = r"(?:^|[,.;:!?(–-]\s*|\b(?:and|but|so|cos|because|n|then|that|if|when|as)\s+)"
_SOMEBODY = (
    rf"(?:my|our|his|her|a|an|the|this|some)(?: \w+)? (?:{KIN}|boss|manager|coach|teacher|nurse|guy|girl|boy|man|woman"
    r"|lad|lass|lassie|bloke|chap|fella|fellow|lady|gentleman|kid|student|lodger|apprentice|owner)"
)
_TELLS = "|".join((  # NAMES stands for the names of a question
    rf"\b{_SOMEBODY}(?: (?!(?:from|in|of|at|to|near|off|on)\b)\w+){{0,3}},? (NAMES)\b",
    rf"\b(NAMES),? {_SOMEBODY}\b",
    rf"{_CLAUSE_BEGINS}(NAMES)(?:['’]s)? {_ACTS}\b",
    r"\b(?:me and|me n|me &) (NAMES)\b|\b(NAMES) (?:and|n|&) (?:i|me)\b",
    r"\b(NAMES)(?: \w+)?,? (?:who|he|she)\b",
))  # fmt: skip


def names_acquaintance(question: str, statements: Iterable[str]) -> bool:
    """Whether a question names a person of whom one of the statements tells."""
    words = (_POSSESSIVE.sub("", word) for word in _WORD.findall(question))
    names = [word for word in words if not (word.lower() in _frequent() or _NOUN.fullmatch(word))]
    if not names:
        return False
    tells = re.compile(_TELLS.replace("NAMES", "|".join(names)), re.IGNORECASE)
    return any(_is_written_as_name(match, text) for text in statements for match in tells.finditer(text))


def _is_written_as_name(match: re.Match[str], text: str) -> bool:
    """Whether the name has a capital, or the text has none at all."""
    name = next(group for group in match.groups() if group)
    return name[0].isupper() or text == text.lower()


@cache
def _frequent() -> frozenset[str]:
    return frequent_words("english")
