"""The times that texts name in languages other than English: one engine, and one YAML file for each language.

`grammar` compiles a language's words and patterns, `meanings` and `recurring` resolve what a pattern matched, `finder`
searches a text. Of English only its common words are known, to tell it from these. Knows no store and no model.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from functools import cache

from localmem.times.languages.finder import Finder
from localmem.times.languages.grammar import UNSPACED, fold, language_names, load_language
from localmem.types import TimeSpan

_SCRIPTS = {  # Japanese holds Han, too; Persian, which is not read, has letters of its own
    "ja": "[\u3041-\u30ff]",
    "ko": "[\uac00-\ud7af]",
    "zh": "[\u3400-\u9fff]",
    "ar": "^(?!.*[\u067e\u0686\u0698\u06a9\u06af\u06cc]).*[\u0600-\u06ff]",
}

_ENGLISH = """
the a an and or but so if then than that this these those there here is are was were be been being am do does did done
have has had will would can could should may might must i you he she it we they me him her us them my your his its our
their of in on at to for from by with as into over under about after before up down out off no not yes ok what which who
when where why how all any some one two go get make made let lets like just now still too very more much many day week
month year today tomorrow yesterday last next ago since until monday tuesday wednesday thursday friday saturday sunday
dont im thats cool good
"""
_SHARED = 60  # what a common word counts, divided by how many languages have it


def find_times(text: str, day: date, context: Sequence[TimeSpan] = (), language: str = "") -> list[TimeSpan]:
    """The times that a text names, in its order and without overlaps; none where a rule is not sure what is meant.

    `day` is the local date on which it was said, `context` the times named before in the session, oldest first.
    `language` is an ISO 639-1 code; "" goes by the script and the common words, and where these fit several languages
    equally well, not English among them, by all whose rules match, if they agree. Other languages have no times.
    """
    names = [language] if language else _likeliest_languages(text)
    if "en" in names:
        return []
    results = [Finder(rules, text, day, context).find() for name in names if (rules := load_language(name))]
    results = [spans for spans in results if spans]
    return results[0] if results and all(spans == results[0] for spans in results) else []


def detect_language(text: str) -> str:
    """The ISO 639-1 code of a text's language by its script, then by its common words; "" where nothing decides."""
    names = _likeliest_languages(text)
    return names[0] if len(names) == 1 else ""


def _likeliest_languages(text: str) -> list[str]:
    """The languages that a text's script, then its common words fit best; none where no word is common."""
    if not text.isascii():
        for name, script in _SCRIPTS.items():
            if re.search(script, text):
                return [name]
    shares: dict[str, int] = defaultdict(int)
    for word in set(re.findall(r"[^\W\d_]+", fold(text))):
        languages = _languages_of().get(word, ())
        for name in languages:
            shares[name] += _SHARED // len(languages)
    most = max(shares.values(), default=0)
    return [name for name, share in shares.items() if share == most]


@cache
def _languages_of() -> dict[str, list[str]]:
    """The languages in Latin letters, English among them, in which a word is common."""
    table: dict[str, list[str]] = defaultdict(list)
    for name in language_names():
        rules = None if name in UNSPACED else load_language(name)
        for word in rules.common if rules else ():
            table[word].append(name)
    for word in _ENGLISH.split():
        table[word].append("en")
    return table
