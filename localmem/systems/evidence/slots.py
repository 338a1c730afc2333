"""Slots: what has one value at a time and is told by a name: where somebody lives or works, who "my dentist" is.

"I live in Tacoma" and "We've moved to Olympia" are of one slot, but not "My sister lives in Leeds" nor "I met Ana".
Read by words alone, in English; they stand in slots.yaml. What may tell of the past, of a while or of something besides
announces no change: an old statement that still holds must not be lost. Pure functions; no model.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from localmem.files import read_yaml
from localmem.text.parse import words

_SAY_NOTHING = {"and", "de", "dr", "la", "miss", "mr", "mrs", "ms", "of", "prof", "professor", "the", "upon"}


class Slot(NamedTuple):
    """What is told of, the words of its value, and whether a change is announced beside it."""

    kind: str
    value: frozenset[str]
    is_change: bool

    def replaces(self, old: "Slot") -> bool:
        """Whether it announces another value of the same; "Dr Patel" is no other than "Anna Patel"."""
        return self.is_change and self.kind == old.kind and not (self.value <= old.value or old.value <= self.value)


def read_slots(text: str) -> Iterator[Slot]:
    """The slots of a sentence, at most one a clause."""
    rules, rewrites = _rules()
    for clause in rules["clauses"].split(rules["title"].sub(r"\1", text)):
        line = clause
        for pattern, replacement in rewrites:
            line = pattern.sub(replacement, line)
        match = rules["small_names" if text.islower() else "names"].search(line)
        if match and not rules["unsure"].search(clause):
            phrase, name = " ".join(match.groups()[:2]).lower(), match[3]
            kind = re.sub(" be$", " named", rules["new"].sub("", phrase))
            around = "" if phrase.endswith(" be") else clause.replace(name, "", 1)  # "my boss is sick now" names nobody
            announced = rules["new"].match(phrase) or rules["change"].search(around)
            is_change = bool(announced and not rules["besides"].search(clause))
            yield Slot(kind, frozenset(words(name)) - _SAY_NOTHING, is_change)


@cache
def _rules() -> tuple[dict[str, re.Pattern[str]], list[tuple[re.Pattern[str], str]]]:
    table = TypeAdapter(dict[str, dict[str, str]]).validate_python(read_yaml(Path(__file__).with_suffix(".yaml")))

    def build(pattern: str) -> re.Pattern[str]:
        for name, part in [*table["parts"].items()][::-1] * 2:  # parts are made of parts
            pattern = pattern.replace(name, part)
        return re.compile(pattern.replace(" |", "|"), re.IGNORECASE)

    rewrites = [(build(pattern), text) for pattern, text in table["rewrites"].items()]
    return {name: build(pattern) for name, pattern in table["patterns"].items()}, rewrites
