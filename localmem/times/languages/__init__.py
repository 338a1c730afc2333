"""The times that texts name in languages other than English: one engine, and one YAML file for each language.

`grammar` compiles a language's words and patterns, `meanings` and `recurring` resolve what a pattern matched, `finder`
searches a text. Knows no store and no model.
"""

import re
from collections.abc import Sequence
from datetime import date

from localmem.times.languages.finder import Finder
from localmem.times.languages.grammar import UNSPACED, language_names, load_language
from localmem.types import TimeSpan

_KANA, _HAN = re.compile("[\u3041-\u30ff]"), re.compile("[\u3400-\u9fff]")


def find_times(text: str, day: date, context: Sequence[TimeSpan] = (), language: str = "") -> list[TimeSpan]:
    """The times that a text names, in its order and without overlaps; none where a rule is not sure what is meant.

    `day` is the local date on which it was said, `context` the times named before in the session, oldest first.
    `language` is an ISO 639-1 code; "" goes by the script and the common words. Other languages have no times.
    """
    rules = load_language(language or detect_language(text))
    return Finder(rules, text, day, context).find() if rules else []


def detect_language(text: str) -> str:
    """The ISO 639-1 code of a text's language by its script, then by its common words; "" where nothing decides."""
    if not text.isascii():
        if _KANA.search(text):
            return "ja"
        if _HAN.search(text):
            return "zh"
    words = set(re.findall(r"[^\W\d_]+", text.lower()))
    spaced = [rules for name in language_names() if name not in UNSPACED and (rules := load_language(name))]
    counts = sorted(((len(words & rules.common), rules.name) for rules in spaced), reverse=True)
    (most, name), (second, _) = counts[:2]
    return name if most > second else ""
