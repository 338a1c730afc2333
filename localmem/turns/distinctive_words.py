"""Distinctive words: by which a reply is known to repeat what a message said. Does not know which messages matter."""

from functools import lru_cache

from localmem.retrieval.languages import is_stop_word
from localmem.text.parse import words
from localmem.turns.forget_topics import terms


@lru_cache(maxsize=1024)  # clients resend their dialogues
def find_distinctive_words(text: str) -> frozenset[str]:
    """The words of a text, folded, but for frequent ones and single characters, which any two texts may share."""
    return frozenset(word for word in terms(words(text)) if len(word) > 1 and not is_stop_word(word))
