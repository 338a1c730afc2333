"""Distinctive words: by which a reply is known to repeat what a message said. Does not know which messages matter."""

import re
from functools import lru_cache

from localmem.retrieval.languages import detect_language
from localmem.text.parse import words
from localmem.turns.forget_topics import folded_frequent_words, terms


@lru_cache(maxsize=1024)  # clients resend their dialogues
def find_distinctive_words(text: str) -> frozenset[str]:
    """The words of a text, folded, but for those that any two texts may share; all of them where none is left.

    Single characters and the frequent words of the text's language are left out, of English where nothing decides: a
    frequent word of another language may be a name in this one.
    """
    unique = frozenset(terms(words(text)))
    language = detect_language(text, re.findall(r"\w+", text.casefold()))  # accents tell languages apart
    frequent = folded_frequent_words(language or "english")
    return frozenset(word for word in unique if len(word) > 1 and word not in frequent) or unique
