"""The times that a text names, by its language. Knows no store and no model."""

from collections.abc import Sequence
from datetime import date
from importlib import import_module
from importlib.util import find_spec

from localmem.times import english
from localmem.types import TimeSpan


def find_times(
    text: str, day: date, context: Sequence[TimeSpan] = (), *, language: str = "", day_first: bool | None = None
) -> list[TimeSpan]:
    """The times that a text names, in its order and without overlaps; none where a rule is not sure what is meant.

    `day` is the local date on which it was said, `context` the times named before in the session, oldest first.
    `language` is an ISO 639-1 code, "" to go by the text. `day_first` settles "9/11/25", which has two readings.
    """
    if (language or guess_language(text)) == "en":
        return english.find_times(text, day, context, day_first=day_first)
    if find_spec("localmem.times.languages") is None:
        return []
    spans: list[TimeSpan] = import_module("localmem.times.languages").find_times(text, day, context, language)
    return spans


def guess_language(text: str) -> str:
    """The ISO 639-1 code of a text's language, "" where it cannot be told."""
    return "en" if text else ""
