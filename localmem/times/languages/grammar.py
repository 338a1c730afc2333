"""A language's words and patterns of times, read from its YAML file and compiled. Knows no calendar.

A pattern is a line of elements between spaces: a regular expression, one in brackets where it may be missing (there `_`
is a space), and in either `{slot}` or `{name:slot}` for a word of a list of the file. It is matched in text folded by
`fold`.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from localmem.files import read_yaml

UNSPACED = frozenset({"zh", "ja"})
_SLOT = re.compile(r"\{(?:(\w+):)?([a-z]\w*)\}")
_IDEOGRAPHIC = "〇零一二三四五六七八九十"
_DIGITS = {
    "day": "[12][0-9]|3[01]|0?[1-9]",
    "monthnumber": "1[0-2]|0?[1-9]",
    "number": "[0-9]{1,3}",
    "year": "1[5-9][0-9]{2}|20[0-9]{2}",
    "shortyear": "[0-9]{2}",
}
_FIRST = {"weekday": 0, "weekdays": 0}  # the value of a list's first words; 1 for all other lists


class Pattern(NamedTuple):
    """What a pattern means, the regular expression that finds it, its groups' slots, and constants of its meaning."""

    meaning: str
    expression: re.Pattern[str]
    slots: Mapping[str, str]
    constants: Mapping[str, int]


class Language:
    """The patterns of one language and the values of its words. Raises BadInput where its file cannot be read."""

    def __init__(self, name: str) -> None:
        table: dict[str, Any] = read_yaml(Path(__file__).with_name(f"{name}.yaml"))
        self.name = name
        self.unspaced = name in UNSPACED
        self._gap = r"\s*" if self.unspaced else r"\s+"
        self.common = frozenset(table["common"].split())
        self._folding = str.maketrans(table.get("folding", {}))
        self._slots = {slot: self._entries(slot, words) for slot, words in table["words"].items()}
        self.value = lru_cache(maxsize=4096)(self._value)
        boundary = rf"(?!(?<=[0-9{_IDEOGRAPHIC}])[0-9{_IDEOGRAPHIC}])" if self.unspaced else r"(?<![\w€$£#])"
        self._begin = boundary + r"(?<![0-9][.,:/-])"
        self._end = r"(?![0-9])" if self.unspaced else r"(?![\w%€$£]|[.,:/-][0-9])"
        rows = [(meaning, _fold(line)) for meaning, lines in table["patterns"].items() for line in lines.splitlines()]
        self.patterns = [self._compile(meaning, line) for meaning, line in rows]
        starts = dict.fromkeys(start for _, line in rows for start in self._starts(line))
        self.openings = re.compile(f"{self._begin}(?={'|'.join(starts)})")
        self.past, self.future = (_any_line(table["tenses"][tense]) for tense in ("past", "future"))
        roles = {place: self._roles(words) for place, words in table["roles"].items()}
        edge = "" if self.unspaced else r"(?<!\w)"
        before = roles["before"] or "(?!)"
        self.before, self.opening = re.compile(rf"{edge}(?:{before})\s*$"), re.compile(rf"(?:{before})(?!\w)")
        self.after = re.compile(rf"\s*(?:{roles.get('after') or '(?!)'})")
        self.between = re.compile(rf"\s*(?:{roles['between']})\s*")

    def fold(self, text: str) -> str:
        """A text of the same length in lower case, without accents, with plain digits and apostrophes."""
        folded = _fold(text)
        return folded.translate(self._folding) if self._folding else folded

    def names_month(self, words: str) -> bool:
        """Whether words name a month, alone or in a date."""
        folded = self.fold(words)
        with_month = (pattern for pattern in self.patterns if "month" in pattern.slots)
        return any(pattern.expression.search(folded) for pattern in with_month)

    def _entries(self, slot: str, words: str) -> list[tuple[int, str]]:
        """The values of a slot, each with the expression of its words: `value=words` or, in a list, the words alone."""
        entries = []
        for number, entry in enumerate(_fold(words).split(), _FIRST.get(slot, 1)):
            value, separator, expression = entry.rpartition("=") if re.match("-?[0-9]+=", entry) else ("", "", entry)
            entries.append((int(value) if separator else number, self._spaced(expression)))
        return entries

    def _spaced(self, expression: str) -> str:
        return expression.replace("_", f"(?:{self._gap})")

    def _value(self, slot: str, words: str) -> int:
        """The value of the words that a slot matched."""
        digits = re.match(r"[0-9]+", words)
        if digits and slot not in ("holiday", "decade"):
            return int(digits[0])
        for value, expression in self._slots[slot]:
            if expression and re.fullmatch(expression, words):
                return value
        raise KeyError(words)

    def _compile(self, meaning: str, line: str) -> Pattern:
        meaning, *constants = meaning.split()
        expression, begun = "", False
        for element, optional in self._elements(line):
            plain = _SLOT.sub(lambda match: f"(?P<{match[1] or match[2]}>{self._alternatives(match[2])})", element)
            between = self._gap if begun else ""
            if optional:
                expression += f"(?:{between}(?:{plain}){'' if begun else self._gap})?"
            else:
                expression += f"{between}(?:{plain})"
                begun = True
        return Pattern(
            meaning,
            re.compile(self._begin + f"(?:{expression})" + self._end),
            {match[1] or match[2]: match[2] for match in _SLOT.finditer(line)},
            {name: int(value) for name, value in (constant.split("=") for constant in constants)},
        )

    def _starts(self, line: str) -> Iterator[str]:
        """The expressions with which a pattern may begin."""
        for element, optional in self._elements(line):
            yield _SLOT.sub(lambda match: f"(?:{self._alternatives(match[2])})", element)
            if not optional:
                break

    def _elements(self, line: str) -> Iterator[tuple[str, bool]]:
        """The elements of a pattern, and whether each may be missing."""
        for element in self._spaced(line).split():
            optional = element.startswith("[")
            yield (element[1:-1] if optional else element), optional

    def _alternatives(self, slot: str) -> str:
        words = [expression for _, expression in self._slots.get(slot, ()) if expression]
        digits = [_DIGITS[slot]] if slot in _DIGITS else []
        return "|".join(digits + words)

    def _roles(self, table: Mapping[str, str]) -> str:
        """The words of each role, as groups that bear its name."""
        return "|".join(f"(?P<{role}>{self._spaced(_fold(words))})" for role, words in table.items())


@cache
def load_language(name: str) -> Language | None:
    """A language by its ISO 639-1 code; None where there is no file for it."""
    return Language(name) if name in language_names() else None


@cache
def language_names() -> tuple[str, ...]:
    """The codes of the languages that have a file."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.yaml")))


def _any_line(lines: str) -> re.Pattern[str]:
    return re.compile("|".join(lines.splitlines()) or "(?!)", re.IGNORECASE)


def _fold(text: str) -> str:
    lower = text.lower()
    return (lower if len(lower) == len(text) else text).translate(_plain_letters())


@cache
def _plain_letters() -> dict[int, str]:
    """Letters of the Latin script with accents, apostrophes and full-width signs, and what they are read as."""
    letters = map(chr, (*range(0xC0, 0x180), *range(0xFF10, 0xFF1A)))
    plain = {ord(letter): unicodedata.normalize("NFKD", letter)[0] for letter in letters}
    return plain | {ord("’"): "'", ord("／"): "/", ord("\u3000"): " ", ord("\u00a0"): " "}
