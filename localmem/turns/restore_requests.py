"""Recognises a person's request to take a forgetting back. Words only; does not know what was forgotten.

The words of other languages than English stand in restore_requests.yaml.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from localmem.files import read_yaml
from localmem.turns.utterances import asks_only
from localmem.types import Turn

_I = re.IGNORECASE
_RESTORE = re.compile(
    r"^\W*(?:(?:no|wait|oh|ok|okay|actually|sorry|hey|hang on|please|pls|can you|could you|you can|kindly"
    r"|on (?:reflection|second thoughts?)|i(?:['’]ve| have)? (?:changed my mind|thought better of it))\W+)*(?:"
    r"(?:bring|put|get|give)\s+(?:that|it|them|this)\s+back|undo(?:\s+(?:that|it|this|the forgetting))?"
    r"|take\s+that\s+back"
    r"|(?:do\s+)?remember\s+(?:it|that|this)|(?:restore|unforget)\s+(?:it|that|this)|don['’]?t\s+forget\s+(?:it|that)"
    r"|keep\s+(?:it|that))(?:\s+(?:please|pls|again|after all))*\W*$",
    _I,
)

_REASON = re.compile(  # "undo that; she need never know", "if you would", but not "undo that, I live in Leeds"
    r",? (?:if you (?:would|please|will|don['’]?t mind)|would you|will you)\W*$|(?<=\w)\s*[,;.!–—-]+\s+(?:i (?:was"
    r" (?:wrong|hasty|silly|joking|confused)|changed|(?:need|want) (?:it|that)|do|still|might|may|will|didn['’]?t mean)"
    r"|i['’]ll|s?he|they|it|it['’]s|that was|you|told (?:him|her|them)|sorry|my (?:mistake|bad))\b[^?\d]{0,60}$",
    _I,
)
_UNDO = re.compile(r"\b(?:undo|unforget|restore)\b", _I)
_OF_WHAT_PRECEDES = re.compile(r"\b(?:remember|keep|forget)\b", _I)


def is_restore_request(text: str) -> bool:
    """Whether a message asks to take something back. It means something only right after a forgetting."""
    plain = text if _OF_WHAT_PRECEDES.search(text) else _REASON.sub("", text)
    return _RESTORE.match(plain) is not None or bool(languages_of_restoring(text))


def is_undo_request(text: str) -> bool:
    """Whether such a message can mean nothing else: "undo that", but not "remember that"."""
    if any(undo.fullmatch(text) for undo, _ in _foreign().values()):
        return True
    return is_restore_request(text) and _UNDO.search(text) is not None


def languages_of_restoring(text: str) -> list[str]:
    """The ISO 639-1 codes of the languages, other than English, in which a message asks to take something back."""
    return [name for name, patterns in _foreign().items() if any(each.fullmatch(text) for each in patterns)]


@cache
def _foreign() -> dict[str, tuple[re.Pattern[str], re.Pattern[str]]]:
    """By language what can mean nothing else, and what means it right after a forgetting."""
    table: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
    form = rf"\W*(?:(?:{table['lead']})(?:\W+|(?=[^\x00-\u2fff])))*(?:{{}})(?:\W*(?:{table['lead']}))*\W*"
    return {
        name: (re.compile(form.format(phrases["undo"]), _I), re.compile(form.format(phrases["again"]), _I))
        for name, phrases in table["languages"].items()
    }


def drop_questions(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The turns before the last, which asks to take something back, without the questions at their end and the replies.

    Whoever forgot something likes to check it. What may mean the questions, as "remember that" may, keeps them.
    """
    earlier = turns[:-1]
    text = turns[-1].text
    if _OF_WHAT_PRECEDES.search(text) or any(again.fullmatch(text) for _, again in _foreign().values()):
        return earlier
    users = [place for place, turn in enumerate(earlier) if turn.role == "user"]
    while users and asks_only(earlier[users[-1]].text):
        earlier = earlier[: users.pop()]
    return earlier
