"""Recognises a person's request to take a forgetting back. Words only; does not know what was forgotten."""

import re

_I = re.IGNORECASE
_RESTORE = re.compile(
    r"^\W*(?:(?:no|wait|oh|ok|okay|actually|sorry|hey|hang on|please|pls|can you|could you|you can)\W+)*(?:"
    r"(?:bring|put|get|give)\s+(?:that|it|them|this)\s+back|undo(?:\s+(?:that|it|this|the forgetting))?"
    r"|take\s+that\s+back"
    r"|(?:do\s+)?remember\s+(?:it|that|this)|(?:restore|unforget)\s+(?:it|that|this)|don['’]?t\s+forget\s+(?:it|that)"
    r"|keep\s+(?:it|that)|mach(?:e)? das rückgängig|merk(?:e)? (?:es|dir das) (?:doch|wieder)(?: bitte)?"
    r"|annule(?:r|z)?(?: ça)?|deshazlo|recuérdalo|撤销|恢复|还是记住(?:吧)?)(?:\s+(?:please|pls|again|after all))*\W*$",
    _I,
)

_UNDO = re.compile(r"\b(?:undo|unforget|restore)\b|rückgängig|\bannule|\bdeshazlo\b|撤销|恢复", _I)


def is_restore_request(text: str) -> bool:
    """Whether a message asks to take something back. It means something only right after a forgetting."""
    return _RESTORE.match(text) is not None


def is_undo_request(text: str) -> bool:
    """Whether such a message can mean nothing else: "undo that", but not "remember that"."""
    return is_restore_request(text) and _UNDO.search(text) is not None
