"""The language of a text, by its script and by its stop words. Loads no model; stop words are those of bm25s."""

import runpy
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain

import regex  # type: ignore[import-untyped]  # publishes no types

# The languages that bm25s has stop words for.
STOP_WORDS = frozenset({
    "chinese", "danish", "dutch", "english", "french", "german", "italian", "korean", "norwegian", "portuguese",
    "russian", "spanish", "swedish", "turkish",
})  # fmt: skip

# Scripts that decide by themselves. Kana comes first: Japanese is written with Han characters too.
_SCRIPTS = {
    "japanese": regex.compile(r"[\p{Hiragana}\p{Katakana}]"),
    "chinese": regex.compile(r"\p{Han}"),
    "korean": regex.compile(r"\p{Hangul}"),
    "russian": regex.compile(r"\p{Cyrillic}"),
    "arabic": regex.compile(r"\p{Arabic}"),
    "hindi": regex.compile(r"\p{Devanagari}"),
    "greek": regex.compile(r"\p{Greek}"),
}
_FEWEST = 2  # stop words that tell a language
# Frequent words of English that bm25s's short list of stop words lacks, some of which are stop words elsewhere.
_ENGLISH = frozenset({
    "about", "after", "again", "am", "any", "asked", "been", "before", "can", "can't", "could", "did", "didn't",
    "do", "does", "doesn't", "don't", "down", "from", "get", "go", "got", "had", "has", "have", "he", "her", "here",
    "hers", "him", "his", "how", "i", "i'd", "i'll", "i'm", "i've", "it's", "its", "just", "last", "like", "me",
    "mine", "my", "need", "now", "off", "on", "one", "our", "ours", "out", "over", "put", "s", "said", "say", "she",
    "should", "some", "sort", "than", "thing", "told", "too", "up", "us", "want", "was", "we", "went", "were",
    "what", "what's", "when", "where", "which", "while", "who", "who's", "whose", "why", "would", "you", "you're",
    "your", "yours",
})  # fmt: skip


def detect_language(text: str, words: Sequence[str]) -> str | None:
    """The language of a text that has these words, such as "english"; None where nothing decides."""
    if not text.isascii():
        for language, script in _SCRIPTS.items():
            if script.search(text):
                return language
    table = _languages_of()
    (best, count), (_, second), *_ = [
        *Counter(chain.from_iterable(table.get(word, ()) for word in words)).most_common(2),
        ("", 0),
        ("", 0),
    ]
    return best if count >= _FEWEST and count > second else None


@cache
def frequent_words(language: str) -> frozenset[str]:
    """The stop words of a language and other frequent words, in lower case; none of a language without stop words."""
    if language not in STOP_WORDS:
        return frozenset()
    return load_stop_words(language) | (_ENGLISH if language == "english" else frozenset())


@cache
def load_stop_words(language: str) -> frozenset[str]:
    """The stop words of bm25s, from its module that holds nothing else, run by itself.

    Importing bm25s imports numba, where that is installed, for 0.6 s.
    """
    suffix = "EN" if language == "english" else language.upper()
    return frozenset(_constants()[f"STOPWORDS_{suffix}"])


@cache
def _constants() -> Mapping[str, Sequence[str]]:
    package = find_spec("bm25s")
    folder = next(iter(package.submodule_search_locations or ())) if package else ""
    return runpy.run_path(f"{folder}/stopwords.py")


@cache
def _languages_of() -> Mapping[str, Sequence[str]]:
    """The languages that have a word as a stop word, of those written in Latin letters."""
    table: dict[str, list[str]] = {}
    for language in sorted(STOP_WORDS - set(_SCRIPTS)):
        for word in load_stop_words(language):
            table.setdefault(word.lower(), []).append(language)
    for word in _ENGLISH.difference(load_stop_words("english")):
        table.setdefault(word, []).append("english")
    return table
