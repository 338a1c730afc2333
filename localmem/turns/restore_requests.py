"""Recognises a person's request to take a forgetting back. Words only; does not know what was forgotten."""

import re
from collections.abc import Sequence

from localmem.turns.utterances import asks_only
from localmem.types import Turn

_I = re.IGNORECASE
_RESTORE = re.compile(
    r"^\W*(?:(?:no|wait|oh|ok|okay|actually|sorry|hey|hang on|please|pls|can you|could you|you can|kindly"
    r"|on (?:reflection|second thoughts?)|i(?:['’]ve| have)? (?:changed my mind|thought better of it))\W+)*(?:"
    r"(?:bring|put|get|give)\s+(?:that|it|them|this)\s+back|undo(?:\s+(?:that|it|this|the forgetting))?"
    r"|take\s+that\s+back"
    r"|(?:do\s+)?remember\s+(?:it|that|this)|(?:restore|unforget)\s+(?:it|that|this)|don['’]?t\s+forget\s+(?:it|that)"
    r"|keep\s+(?:it|that)|mach(?:e)? das rückgängig|merk(?:e)? (?:es|dir das) (?:doch|wieder)(?: bitte)?"
    r"|annule(?:r|z)?(?: ça)?|deshazlo|recuérdalo|撤销|恢复|还是记住(?:吧)?)(?:\s+(?:please|pls|again|after all))*\W*$",
    _I,
)

_REASON = re.compile(  # "undo that; she need never know", "if you would", but not "undo that, I live in Leeds"
    r",? (?:if you (?:would|please|will|don['’]?t mind)|would you|will you)\W*$|(?<=\w)\s*[,;.!–—-]+\s+(?:i (?:was"
    r" (?:wrong|hasty|silly|joking|confused)|changed|(?:need|want) (?:it|that)|do|still|might|may|will|didn['’]?t mean)"
    r"|i['’]ll|s?he|they|it|it['’]s|that was|you|told (?:him|her|them)|sorry|my (?:mistake|bad))\b[^?\d]{0,60}$",
    _I,
)
_UNDO = re.compile(r"\b(?:undo|unforget|restore)\b|rückgängig|\bannule|\bdeshazlo\b|撤销|恢复", _I)
_OF_WHAT_PRECEDES = re.compile(r"\b(?:remember|keep|forget)\b|\bmerke?\b|recuérdalo|记住", _I)


def is_restore_request(text: str) -> bool:
    """Whether a message asks to take something back. It means something only right after a forgetting."""
    return _RESTORE.match(text if _OF_WHAT_PRECEDES.search(text) else _REASON.sub("", text)) is not None


def is_undo_request(text: str) -> bool:
    """Whether such a message can mean nothing else: "undo that", but not "remember that"."""
    return is_restore_request(text) and _UNDO.search(text) is not None


def drop_questions(turns: Sequence[Turn]) -> Sequence[Turn]:
    """The turns before the last, which asks to take something back, without the questions at their end and the replies.

    Whoever forgot something likes to check it. What may mean the questions, as "remember that" may, keeps them.
    """
    earlier = turns[:-1]
    if _OF_WHAT_PRECEDES.search(turns[-1].text):
        return earlier
    users = [place for place, turn in enumerate(earlier) if turn.role == "user"]
    while users and asks_only(earlier[users[-1]].text):
        earlier = earlier[: users.pop()]
    return earlier
