"""What words of a question or a statement tell: a plan, the past, an end, a payment, a time that is not resolved.

The words stand in cues.yaml, in English. Knows neither units nor what fits a question.
"""

import re
from functools import cache
from pathlib import Path

from localmem.files import read_yaml

_ALTERNATIVES = re.compile(
    r"(?:^|[,:]|\b(?:first|last|earlier|later|recently)\b)\s*(?P<a>[^,:?]+?),? or (?P<b>[^?]+)", re.IGNORECASE
)
_NUMBERS = ("two", "three", "four", "five", "six")


@cache
def _pattern(cue: str) -> re.Pattern[str]:
    ways = " ".join(str(_cues()[cue]).split()).split(" | ")
    return re.compile(rf"(?<!\w)(?:{'|'.join(ways)})(?!\w)", re.IGNORECASE)


@cache
def _cues() -> dict[str, object]:
    return read_yaml(Path(__file__).with_suffix(".yaml"))


def find_cue(cue: str, text: str, end: int | None = None) -> re.Match[str] | None:
    """Where words of a text, or of what stands before `end`, tell this, as cues.yaml names it."""
    return _pattern(cue).search(text, 0, len(text) if end is None else end)


def tells(cue: str, text: str) -> bool:
    """Whether words of a text tell this."""
    return find_cue(cue, text) is not None


def _named(cue: str, part: str, text: str) -> str:
    match = _pattern(cue).search(text)
    return (match[part] or "") if match else ""


def asks_ahead(question: str) -> bool:
    """Whether a question asks for what is still to come."""
    return tells("asks ahead", question) and not tells("asks of the past", question)


def asks_back(question: str) -> bool:
    """Whether a question asks for what took place, and for no plan."""
    is_plan = tells("asks for a plan", question) or tells("asks what was said", question)
    return tells("asks what happened", question) and not is_plan


def moment_of_age(question: str) -> str:
    """The words of the moment at which a question asks how old somebody was or will be; "" for now."""
    return _named("names a moment of an age", "moment", question)


def count_of_amounts(question: str) -> int:
    """How many amounts a question asks the sum of: "what do the three jabs come to"; 0 where it does not say."""
    word = _named("counts amounts", "count", question).lower()
    return _NUMBERS.index(word) + 2 if word else 0


def count_from(question: str) -> str:
    """The count by which a question asks for a day: "two weeks after" Dad moved, been there "a week"."""
    match = _pattern("counts a day").search(question)
    return f"{match['length'] or match['lasting']} {match['side'] or 'after'}" if match else ""


def rate_of(question: str) -> str:
    """What a question asks the price for, as it says it: " a month"; "" for none."""
    rate = _named("names a rate", "rate", question).lower()
    return f" {rate}" if rate else ""


def period_of(text: str) -> str:
    """The time that a text first names a price for, such as "month"; "" for none."""
    period = _named("names a period", "period", text) or _named("names a period", "regular", text)
    return period.lower().replace("hour", "h")


def alternatives(question: str) -> tuple[str, str] | None:
    """The two things of which a question asks which came first."""
    match = _ALTERNATIVES.search(question)
    return (match["a"].strip(" '\""), match["b"].strip(" '\"")) if match else None
