"""A language's words and patterns of times, read from its YAML file and compiled. Knows no calendar.

A pattern is a line of elements between spaces: a regular expression, one in brackets where it may be missing (there `_`
is a space), and in either `{slot}` or `{name:slot}` for a word of a list of the file. It is matched in text folded by
`fold`.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from localmem.files import read_yaml

_NOTHING = "(?!)"  # an expression that matches nowhere
UNSPACED = frozenset({"zh", "ja", "ko"})
_SLOT = re.compile(r"\{(?:(\w+):)?([a-z]\w*)\}")
_IDEOGRAPHIC = "〇零一二三四五六七八九十"
_DIGITS = {
    "day": "[12][0-9]|3[01]|0?[1-9]",
    "monthnumber": "1[0-2]|0?[1-9]",
    "number": "[0-9]{1,3}",
    "year": "1[5-9][0-9]{2}|20[0-9]{2}",
    "shortyear": "[0-9]{2}",
}
_FIRST = {"weekday": 0, "weekdays": 0, "short": 0}  # the value of a list's first words; 1 for all other lists


class Pattern:
    """What a pattern means, and the regular expression that finds it, compiled when it is first needed.

    `slots` are the slots of the expression's groups, `constants` are values of the meaning that no words give.
    """

    def __init__(self, meaning: str, source: str, slots: Mapping[str, str]) -> None:
        self.meaning, *constants = meaning.split()
        self.constants = {name: int(value) for name, value in (constant.split("=") for constant in constants)}
        self.slots = slots
        self._source = source

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """What is matched at an opening."""
        return re.compile(self._source)


class Language:
    """The patterns of one language and the values of its words. Raises BadInput where its file cannot be read."""

    def __init__(self, name: str) -> None:
        self._table = _read_table(name)
        self.name = name
        self.unspaced = name in UNSPACED
        self.verb_last = bool(self._table.get("verb_last"))  # only a sentence's last clause has a tense
        times = re.findall(r"[^\W\d_]{3,}", fold(" ".join(self._table["words"].values())))
        self.common = frozenset((*fold(self._table["common"]).split(), *times))
        self.past, self.future = (_any_line(self._table["tenses"][tense]) for tense in ("past", "future"))
        self._gap = r"\s*" if self.unspaced else r"\s+"
        self._folding = str.maketrans(self._table.get("folding", {}))
        self._slots = {slot: dict(self._entries(slot, words)) for slot, words in self._table["words"].items()}
        boundary = rf"(?!(?<=[0-9{_IDEOGRAPHIC}])[0-9{_IDEOGRAPHIC}])" if self.unspaced else r"(?<![\w€$£#])"
        self._begin = boundary + r"(?<![0-9][.,:/-])"
        self._end = r"(?!(?<=[0-9])[0-9])" if self.unspaced else r"(?![\w%€$£]|[.,:/-][0-9])"
        roles = {place: self._roles(words) for place, words in self._table["roles"].items()}
        edge, before = "" if self.unspaced else r"(?<!\w)", roles["before"] or _NOTHING
        self.before, self.opening = re.compile(rf"{edge}(?:{before})\s*$"), re.compile(rf"(?:{before})(?!\w)")
        self.after = re.compile(rf"\s*(?:{roles.get('after') or _NOTHING})")
        self.between = re.compile(rf"\s*(?:{roles['between']})\s*")

    @cached_property
    def openings(self) -> re.Pattern[str]:
        """Where a pattern may begin."""
        return re.compile(f"{self._begin}(?={'|'.join(self._by_opening)})")

    def candidates(self, text: str, at: int) -> Iterator[tuple[Pattern, re.Match[str]]]:
        """The patterns that match a folded text at a character."""
        for opening, patterns in self._groups:
            if opening.match(text, at):
                for pattern in patterns:
                    if match := pattern.expression.match(text, at):
                        yield pattern, match

    @cached_property
    def _groups(self) -> list[tuple[re.Pattern[str], list[Pattern]]]:
        return [(re.compile(opening), patterns) for opening, patterns in self._by_opening.items()]

    @cached_property
    def _by_opening(self) -> dict[str, list[Pattern]]:
        """The patterns by the expression of what they begin with."""
        groups: dict[str, list[Pattern]] = {}
        for meaning, lines in self._table["patterns"].items():
            for line in fold(lines).splitlines():
                groups.setdefault("|".join(self._openings_of(line)), []).append(self._read_pattern(meaning, line))
        return groups

    def fold(self, text: str) -> str:
        """A text of the same length in lower case, without accents, with plain digits and apostrophes."""
        folded = fold(text)
        return folded.translate(self._folding) if self._folding else folded

    def names_month(self, words: str) -> bool:
        """Whether words name a month, alone or in a date."""
        folded = self.fold(words)
        starts = (match.start() for match in self.openings.finditer(folded))
        return any("month" in pattern.slots for start in starts for pattern, _ in self.candidates(folded, start))

    def _entries(self, slot: str, words: str) -> Iterator[tuple[int, str]]:
        """The values of a slot with the expression of their words: `value=words` or, in a list, the words alone."""
        for number, entry in enumerate(fold(words).split(), _FIRST.get(slot, 1)):
            value, separator, expression = entry.rpartition("=") if re.match("-?[0-9]+=", entry) else ("", "", entry)
            yield int(value) if separator else number, self._spaced(expression)

    def _spaced(self, expression: str) -> str:
        return expression.replace("_", f"(?:{self._gap})")

    @lru_cache(maxsize=4096)  # noqa: B019  # languages live as long as the process
    def value(self, slot: str, words: str) -> int:
        """The value of the words that a slot matched."""
        digits = re.match(r"[0-9]+", words) if slot in _DIGITS else None
        if digits:
            return int(digits[0])
        match = self._valuer(slot).fullmatch(words)
        if not match or not match.lastgroup:
            raise KeyError(words)
        return int(match.lastgroup[1:].replace("m", "-"))

    @cache  # noqa: B019
    def _valuer(self, slot: str) -> re.Pattern[str]:
        """The words of a slot in groups that are named by their values: v3, or vm1 for -1."""
        pairs = self._slots[slot].items()
        return re.compile("|".join(f"(?P<v{value}>{words})".replace("<v-", "<vm") for value, words in pairs))

    def _read_pattern(self, meaning: str, line: str) -> Pattern:
        expression, begun = "", False
        for element, optional in self._elements(line):
            plain = _SLOT.sub(lambda match: f"(?P<{match[1] or match[2]}>{self._alternatives(match[2])})", element)
            between = self._gap if begun else ""
            if optional:
                expression += f"(?:{between}(?:{plain}){'' if begun else self._gap})?"
            else:
                expression += f"{between}(?:{plain})"
                begun = True
        slots = {match[1] or match[2]: match[2] for match in _SLOT.finditer(line)}
        return Pattern(meaning, f"{self._begin}(?:{expression}){self._end}", slots)

    def _openings_of(self, line: str) -> Iterator[str]:
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
        digits = [_DIGITS[slot]] if slot in _DIGITS else []
        words = [word for entry in self._slots.get(slot, {}).values() for word in self._split(entry)]
        return "|".join((*digits, *sorted(words, key=len, reverse=True)))

    def _split(self, expression: str) -> list[str]:
        """The alternatives of an expression, so that longer ones can come first; one with groups stays in one piece."""
        return [expression] if "(" in expression.replace(self._spaced("_"), "") else expression.split("|")

    def _roles(self, table: Mapping[str, str]) -> str:
        """The words of each role, as groups that bear its name."""
        return "|".join(f"(?P<{role}>{self._spaced(fold(words))})" for role, words in table.items())


@cache
def load_language(name: str) -> Language | None:
    """A language by its ISO 639-1 code; None where there is no file for it."""
    return Language(name) if name in language_names() else None


def _read_table(name: str) -> dict[str, Any]:
    return read_yaml(Path(__file__).with_name(f"{name}.yaml"))


@cache
def language_names() -> tuple[str, ...]:
    """The codes of the languages that have a file."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.yaml")))


def _any_line(lines: str) -> re.Pattern[str]:
    return re.compile("|".join(lines.splitlines()) or _NOTHING, re.IGNORECASE)


def fold(text: str) -> str:
    """A text of the same length in lower case, with plain letters, digits and apostrophes."""
    lower = text.replace("İ", "i").lower()
    return (lower if len(lower) == len(text) else text).translate(_plain_letters())


@cache
def _plain_letters() -> dict[int, str]:
    """Letters of the Latin script with accents, apostrophes and full-width signs, and what they are read as."""
    letters = map(chr, (*range(0xC0, 0x180), *range(0xFF10, 0xFF1A)))
    plain = {ord(letter): unicodedata.normalize("NFKD", letter)[0] for letter in letters}
    return plain | {ord("’"): "'", ord("／"): "/", ord("\u3000"): " ", ord("\u00a0"): " "}
