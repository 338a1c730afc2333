"""The rules of english.yaml as patterns over the kinds of words: one for all kinds that begin the same rules."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from localmem.times.english_words import kind_of, load_grammar, load_lexicon, names_of

_SYMBOL = re.compile(r"[A-Z]+|[a-z_']+|\S")  # of a rule
_TOKEN = re.compile(r"\(\?:|\[[^\]]*\]|\\?.")  # of a compiled one


class Match(NamedTuple):
    """Where a rule of this name matched, in words."""

    start: int
    end: int
    name: str


@dataclass(frozen=True)
class Grammar:
    """Compiled rules and their names, which of them begin with a kind, and where any may begin."""

    rules: Sequence[tuple[str, str]]
    by_kind: Mapping[str, tuple[int, ...]]
    begins: re.Pattern[str]
    loose: frozenset[str]
    patterns: dict[tuple[int, ...], re.Pattern[str]] = field(default_factory=dict)

    def search(self, kinds: str, position: int) -> Match | None:
        """The first match from a position on: of the rule that is written first, at the leftmost word."""
        for begin in self.begins.finditer(kinds, position):
            if match := self._match(kinds, begin.start()):
                return self._longer(kinds, match) or match
        return None

    def _longer(self, kinds: str, found: Match) -> Match | None:
        """The match one word on that ends later, behind a word of `loose`: "come over | the day after Easter"."""
        if kinds[found.start] not in self.loose or found.end - found.start < 2:
            return None
        match = self.match(kinds, found.start + 1)
        return match if match and match.end > found.end else None

    def match(self, kinds: str, position: int) -> Match | None:
        """The match that begins at a position."""
        return self._match(kinds, position) if self.begins.match(kinds, position) else None

    def _match(self, kinds: str, position: int) -> Match | None:
        indexes = self.by_kind[kinds[position]]
        pattern = self.patterns.get(indexes)
        if pattern is None:  # most texts need few of them
            groups = (f"(?P<r{index}>{self.rules[index][0]})" for index in indexes)
            pattern = self.patterns[indexes] = re.compile("|".join(groups))
        match = pattern.match(kinds, position)
        return Match(position, match.end(), self.rules[int((match.lastgroup or "")[1:])][1]) if match else None


@cache
def load_rules() -> Grammar:
    """The rules of english.yaml."""
    data = load_grammar()
    rules = [(_compile(pattern), name) for pattern, name in (*data["relations"], *data["rules"])]
    by_kind: dict[str, list[int]] = {}
    for index, (pattern, _) in enumerate(rules):
        for kind in _first_kinds(pattern):
            by_kind.setdefault(kind, []).append(index)
    anchors = "".join(kind_of(name) for group in data["anchors"].split() for name in names_of(group))
    first = "".join(re.escape(kind) for kind in by_kind)
    begins = re.compile(f"[{first}](?<=[{anchors}])|[{first}](?=[^_.]*[{anchors}])")  # a time has an anchor
    loose = frozenset(kind_of(name) for name in data["loose"].split())
    return Grammar(rules, {kind: tuple(indexes) for kind, indexes in by_kind.items()}, begins, loose)


def _compile(pattern: str) -> str:
    return "".join(_compile_symbol(symbol) for symbol in _SYMBOL.findall(pattern))


def _compile_symbol(symbol: str) -> str:
    if symbol in load_grammar()["aliases"]:
        return _compile(load_grammar()["aliases"][symbol])
    if symbol.isupper():
        return f"[{''.join(kind_of(name) for name in names_of(symbol))}]"
    if symbol == "(":
        return "(?:"
    if symbol in "|)?*":
        return symbol
    entry = load_lexicon().get(symbol)
    return re.escape(symbol) if symbol in ",-/" else kind_of(entry.name if entry else symbol)


def _first_kinds(pattern: str) -> frozenset[str]:
    """The kinds with which a match of a compiled rule may begin."""
    return _read_choice(_TOKEN.findall(pattern), 0)[0]


def _read_choice(tokens: Sequence[str], at: int) -> tuple[frozenset[str], bool, int]:
    """The first kinds of the alternatives from tokens[at] on, whether one may be empty, and where they end."""
    kinds, may_be_empty = frozenset[str](), False
    while True:
        first, empty, at = _read_sequence(tokens, at)
        kinds, may_be_empty = kinds | first, may_be_empty or empty
        if at >= len(tokens) or tokens[at] == ")":
            return kinds, may_be_empty, at + 1
        at += 1


def _read_sequence(tokens: Sequence[str], at: int) -> tuple[frozenset[str], bool, int]:
    kinds, empty = frozenset[str](), True
    while at < len(tokens) and tokens[at] not in "|)":
        if tokens[at] == "(?:":
            first, may_miss, at = _read_choice(tokens, at + 1)
        else:
            signs = tokens[at][1:-1] if tokens[at][0] == "[" else tokens[at][-1]
            first, may_miss, at = frozenset(signs), False, at + 1
        if at < len(tokens) and tokens[at] in "?*":
            may_miss, at = True, at + 1
        kinds, empty = kinds | first if empty else kinds, empty and may_miss
    return kinds, empty, at
