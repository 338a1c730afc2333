"""String match: whether an answer says what it should and does not say what is out of date.

Knows no model. Case, accents, punctuation and spaces do not count; words do, whole.
"""

import re
import unicodedata
from collections.abc import Sequence


def says(answer: str, accepted: Sequence[str], rejected: Sequence[str] = ()) -> bool:
    """True when the answer holds one of the accepted texts, as whole words, and none of the rejected ones."""
    words = _words(answer)
    return any(_words(text) in words for text in accepted) and not any(_words(text) in words for text in rejected)


def _words(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.casefold())
    letters = "".join(char for char in plain if not unicodedata.combining(char))
    words = re.findall(r"\w+", letters.replace("'", ""))
    return f" {' '.join(words)} "
