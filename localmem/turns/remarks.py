"""Tells what a message states ("my salary is 80k") from a remark on what was said before ("it was silly, I was drunk").

A request to forget means its own message where that states something beside it. In doubt it states something: then
only that message is hidden. Words only, no model; knows the remarks of English. Does not know what is remembered.
"""

import re

from localmem.text.parse import words
from localmem.turns.utterances import is_evidence

_SENTENCE_END = re.compile(r"[.!?…;\n]+(?!\d)")
_OPENING = (
    r"^\W*(?:(?:no|oh|ok|okay|god|sorry|actually|well|hm+|look|listen|and|but|so|yeah|yes|because|cos|since|wait|hey"
    r"|(?:it|this|that)(?:['’]?s| is) (?:private|secret|confidential|sensitive|personal|between us)(?=\s*[,:–—-]))\b\W*"
    r"(?:but\s+)?)*+"
)
_IT_WAS = (
    r"(?:it|that|this|those|they|these)(?:['’]?s|['’]?re| is| are| was| were| has| had| came| sounded| felt| will"
    r"| could| might)\b(?! (?:me|my|i|her|him|us)\b)"
)
_I_WAS = (
    r"(?:i|we)(?:['’]?m| am| was| were| feel| felt)\s+(?:\w+ ){0,2}?(?:drunk|joking|kidding|sorry|embarrassed|tired"
    r"|upset|angry|wrong|stupid|silly|venting|rambling|lying|nervous|uncomfortable|ashamed|confused|mistaken|serious)"
    r"\b[^,;:]*$"
)
_I_REGRET = (
    r"(?:i|we)(?:['’]?ve)? (?:\w+ ){0,2}(?:regret|overshared?|changed? my mind|misspoke"
    r"|take (?:it|that) back|mean it)\b"
)
_SAID_IT = (
    r"\b(?:said|say|saying|tell|told|gave|sent|shared?|typed|wrote|mentioned) (?:(?:you|u)\b|it\b|that\b|this\b"
    r"|too much|so much)|\bi (?:typed|wrote|put|posted|sent)\b.*\b(?:here|chat|window)\b"
)
_REMARK = re.compile(
    rf"{_OPENING}(?:{_IT_WAS}|{_I_WAS}|{_I_REGRET}|never ?mind|wrong (?:chat|person|window|number)|too much"
    rf"|for (?:my|the|our)\b|(?:oh |my )*(?:god|gosh|shit|damn|hell|crap)\W*$)|{_SAID_IT}"
    r"|\bwould (?:kill|hate|fire|be)\b|\breads? (?:this|that|these|it|along|here)\b"
    r"|\bsecond thoughts\b|\bswore me\b|\bno ?(?:body|one) (?:should|must|can|else)\b",
    re.IGNORECASE,
)
_ABOUT_ONE = re.compile(r"\W*(?:i['’]?m|my|s?he['’]?s|we['’]?re|they['’]?re)\b", re.IGNORECASE)
_COMMA = r"(?:,? but\b|\s*[,:;–—]|\s-\s)"
_STOP = r"[.!?…\n]+(?!\W*(?:anyway|now|next|so|back)\b)"
_ANNOUNCED = re.compile(  # "don't store this, my salary is 80k", "pretend I never said this, but ..."
    r"(?:(?P<said>(?:that )?i (?:ever |never |didn['’]?t )?(?:said|say|told you|tell you|mentioned) )?this\b"
    rf"[\w ]{{0,20}}?(?:{_COMMA}|{_STOP})|it\b[\w ]{{0,20}}?{_COMMA}|that\b(?:,? but\b|:))\s*(?P<statement>.+)",
    re.IGNORECASE | re.DOTALL,
)
_SECRET = re.compile(
    r"\b(?:between us|tell you|confession|secret|don'?t tell|by the way|off the record)\b", re.IGNORECASE
)
_LONG = 25  # words


def find_statement(before: str, after: str, *, is_bare: bool, may_announce: bool) -> str:
    """What a message states beside its command, if that is what the command means: before it, or announced by it.

    `after` is what the command names and all that follows, `is_bare` whether it names no more than "that", and
    `may_announce` whether such a command may announce what follows.
    """
    announced = _ANNOUNCED.match(after)
    statement = announced["statement"] if announced and (may_announce or announced["said"]) else ""
    parts = [before] * is_bare + [statement]
    if stated := [part for part in parts if any(map(_states_something, _SENTENCE_END.split(part)))]:
        return " ".join(stated)
    is_meant = re.search(r"\d", before) or _SECRET.search(before) or len(before.split()) >= _LONG
    return before if is_meant else ""


def _states_something(sentence: str) -> bool:
    if re.search(r"\d", sentence):
        return True
    is_long = len(words(sentence)) > 2 or (" " in sentence.strip() and _ABOUT_ONE.match(sentence) is not None)
    return is_long and _REMARK.search(sentence) is None and is_evidence(sentence)
