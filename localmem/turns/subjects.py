"""Subjects: whether two English sentences of a user may be about the same person, by the words they open with.

"Marcus moved to Boise" says nothing of where the user lives, nor does "My sister lives in Denver now". Decided by
words alone; every rule gives way where it cannot be sure. No model; pure functions.
"""

import re

_OPENING = 4  # words, among which a sentence names whom it is about
_WORD = re.compile(r"[^\W_]+")
_USER = re.compile(r"\b(?:i|me|mine|we|us|ours)\b", re.IGNORECASE)
_OF_USER = re.compile(r"\b(?:my|our)\b", re.IGNORECASE)
_BY_USER = re.compile(r"\W*(?:i|my|we|our)\b", re.IGNORECASE)
_REFERS = re.compile(r"\b(?:it|its|they|them|their|this|that|these|those)\b", re.IGNORECASE)
KIN = (  # a pattern of words for relatives, friends and colleagues
    r"(?:(?:(?:step|grand|god)?(?:mother|father|mum|mom|mam|ma|dad|pa|sister|brother|son|daughter|child|kid|parent)"
    r"|mama|mommy|mummy|daddy|sis|bro|wife|husband|partner|girlfriend|boyfriend|fianc[eé]e?|aunt|auntie|uncle|cousin"
    r"|niece|nephew|nan|nana|gran|granny|friend|buddy|mate|neighbou?r|colleague|coworker|roommate|housemate|flatmate)"
    r"s?|(?:grand)?children)"
)
_PERSON = re.compile(KIN, re.IGNORECASE)


def may_share_subject(old: str, new: str) -> bool:
    """Whether a sentence may be about what an earlier one is about."""
    if _USER.search(new):
        return True
    words, before = _WORD.findall(new)[:_OPENING], _WORD.findall(old)
    earlier = {word.lower() for word in before}
    if any(map(_PERSON.fullmatch, words)):
        names = (word for word in words if _PERSON.fullmatch(word) or word[0].isupper())
        return any(word.lower() in earlier for word in names if not _OF_USER.match(word))
    if not words or not _BY_USER.match(old) or any(map(_PERSON.fullmatch, before[:_OPENING])):
        return True
    refers = _REFERS.search(new) or _OF_USER.search(new)
    return refers is not None or words[0].isdigit() or any(word.lower() in earlier for word in words)
