"""Readings: the replies of the reader, which only repeat what is known, and the words by which they are recognised.

Does not know how what they quote is chosen.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter

from localmem.files import read_yaml
from localmem.turns.reminders import without_reminder

NOT_KNOWN = "You haven't told me that."
CLOSEST = "The closest I have:"
SAYS = {"user": "you said", "assistant": "I said", "document": "you showed me a text that says"}
NOTED, FIRST_SAID = "I noted", "you first said"
_QUOTES = re.compile(
    rf'^(?:On \d+ \w+ \d+ )?(?:{"|".join((*SAYS.values(), NOTED, FIRST_SAID))}): "', re.IGNORECASE | re.MULTILINE
)


class Phrases(BaseModel):
    """The replies of another language; see readings.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    not_known: str
    closest: str
    user: str
    assistant: str
    document: str
    noted: str
    homes: str


@cache
def read_phrases() -> Mapping[str, Phrases]:
    """The replies of each language but English, by its ISO 639-1 code."""
    return TypeAdapter(dict[str, Phrases]).validate_python(read_yaml(Path(__file__).with_suffix(".yaml")))


@cache
def _foreign_quotes() -> tuple[tuple[str, ...], re.Pattern[str]]:
    """How such replies begin, and their quotations."""
    phrases = read_phrases().values()
    forms = [form for each in phrases for form in (each.user, each.assistant, each.document, each.noted)]
    quotes = "|".join(re.escape(form).replace(r"\{day\}", r"[^\n:\"]{4,30}") for form in forms)
    beginnings = tuple(text for each in phrases for text in (each.not_known, each.closest))
    return beginnings, re.compile(rf'^(?:{quotes}): "', re.MULTILINE)


def is_reading(reply: str) -> bool:
    """Whether a reply of the assistant is the reader's."""
    beginnings, quotes = _foreign_quotes()
    if reply.startswith((NOT_KNOWN, CLOSEST, *beginnings)):
        return True
    return any(pattern.search(without_reminder(reply)) for pattern in (_QUOTES, quotes))
