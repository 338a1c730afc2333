"""The times that a text names, by its language. Knows no store and no model."""

import re
from collections.abc import Sequence
from datetime import date

from localmem.times import english
from localmem.times.english_words import common_words
from localmem.types import TimeSpan

MONDAY = re.compile(r"\bmon\b(?=\.?,? \d)", re.IGNORECASE)  # "Mon 13 April"; any other "mon" may be French
_NOT_LATIN = "\u0370"  # from Greek on, letters are of other scripts
_ENGLISH_DAY = re.compile(r"\d{1,2}(?:st|nd|rd|th)|\d{1,2}(?:[.:]\d\d)?[ap]m")
_FIRST_WORDS = 60  # of a text tell its language


def find_times(
    text: str, day: date, context: Sequence[TimeSpan] = (), *, language: str = "", day_first: bool | None = None
) -> list[TimeSpan]:
    """The times that a text names, in its order and without overlaps; none where a rule is not sure what is meant.

    `day` is the local date on which it was said, `context` the times named before in the session, oldest first.
    `language` is an ISO 639-1 code, "" to go by the text. `day_first` settles "9/11/25", which has two readings.
    """
    code = language or guess_language(text)
    if code in ("", "en"):
        spans = english.find_times(text, day, context, day_first=day_first)
        if spans or code:
            return spans
    from localmem.times import languages  # its words are not needed where all is English

    return languages.find_times(text, day, context, code)


def guess_language(text: str) -> str:
    """The ISO 639-1 code of a text's language by its script and its common words; "" where nothing decides."""
    if _weigh_words(text) > 0:
        return "en"
    from localmem.times import languages

    return languages.detect_language(MONDAY.sub("", text))


def _weigh_words(text: str) -> int:
    """How many more common words, days ("19th") and hours ("2pm") of English a text has than words of its neighbours.

    Below 0 for another script.
    """
    if not text.isascii() and sum(sign >= _NOT_LATIN and sign.isalpha() for sign in text) > len(text) / 4:
        return -1
    words = MONDAY.sub("", text.lower()).replace("’", "'").split(maxsplit=_FIRST_WORDS)[:_FIRST_WORDS]
    common = {word.strip(".,!?;:\"'()") for word in words}
    days = {word for word in common if _ENGLISH_DAY.fullmatch(word)}
    return len(common & common_words("english") | days) - len(common & common_words("others"))
