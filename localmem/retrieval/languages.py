"""The language of a text, by its script and by its frequent words. Loads no model.

Frequent words are the stop words of bm25s and those of languages.yaml.
"""

import runpy
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import regex

from localmem.files import read_yaml

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
# The ISO 639-1 codes of languages in which the user is answered.
CODES = {
    "arabic": "ar", "chinese": "zh", "dutch": "nl", "english": "en", "french": "fr", "german": "de", "italian": "it",
    "korean": "ko", "polish": "pl", "portuguese": "pt", "russian": "ru", "spanish": "es", "turkish": "tr",
}  # fmt: skip

# Letters that count like a frequent word.
_OWN_LETTERS = {
    "german": regex.compile("ß"),
    "polish": regex.compile("[łąężź]"),
    "portuguese": regex.compile("[ãõ]"),
    "spanish": regex.compile("ñ"),
    "turkish": regex.compile("[ğış]"),
}
_FEWEST = 2  # frequent words that tell a language
# Marks that writers leave out; those of kana, Hangul and Cyrillic й make another letter.
_ACCENTS = regex.compile(r"(?<=[\p{Latin}\p{Greek}\p{Arabic}]\p{M}*)\p{M}+|(?<=[её])\u0308")
_LETTERS = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ı": "i", "œ": "oe", "æ": "ae", "ى": "ي"})


def detect_language(text: str, words: Sequence[str]) -> str | None:
    """The language of a text that has these words, such as "english"; None where nothing decides."""
    if not text.isascii():
        for language, script in _SCRIPTS.items():
            if script.search(text):
                return language
    table = _languages_of()
    (best, count), (_, second), *_ = [
        *Counter(chain.from_iterable(table.get(word) or _by_letters(word) for word in words)).most_common(2),
        ("", 0),
        ("", 0),
    ]
    return best if count >= _FEWEST and count > second else None


def _by_letters(word: str) -> Sequence[str]:
    return () if word.isascii() else [name for name, letters in _OWN_LETTERS.items() if letters.search(word)]


@cache
def frequent_words(language: str) -> frozenset[str]:
    """The stop words of a language and other frequent words, in lower case; none of a language without stop words."""
    stop_words = load_stop_words(language) if language in STOP_WORDS else frozenset[str]()
    return stop_words | _more_words().get(language, frozenset())


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
def _more_words() -> Mapping[str, frozenset[str]]:
    """The content of languages.yaml."""
    return {name: frozenset(str(text).split()) for name, text in read_yaml(Path(__file__).with_suffix(".yaml")).items()}


@cache
def _languages_of() -> Mapping[str, Sequence[str]]:
    """The languages in which a word is frequent, of those written in Latin letters; a word also without its accents."""
    table: dict[str, list[str]] = {}
    languages = {name: {*map(str.lower, frequent_words(name))} for name in sorted({*STOP_WORDS, *_more_words()})}
    words = {name: words for name, words in languages.items() if name not in _SCRIPTS}
    for language, own in words.items():
        for word in own:
            table.setdefault(word, []).append(language)
    bare: dict[str, list[str]] = {}
    for language, own in words.items():
        for word in {fold_accents(word) for word in own}.difference(table):
            bare.setdefault(word, []).append(language)
    return table | bare


def fold_accents(word: str) -> str:
    """A word in lower case as it is written where accents are left out: "Müller" as "muller", "ещё" as "еще"."""
    if word.isascii():
        return word
    plain = _ACCENTS.sub("", unicodedata.normalize("NFD", word).translate(_LETTERS))
    plain = unicodedata.normalize("NFC", plain)
    return f"{plain[:-1]}ة" if plain.endswith("ه") else plain  # in Arabic, dots are left out as well
