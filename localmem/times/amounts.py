"""Amounts that a text names: money, measures and counts, in digits and in English words.

Knows nothing of times: what stands within one is the caller's to leave out. Units are a small table of our own: pint
takes 0.3 s to import and 0.6 s for its table, and price-parser 0.1 s, where a recall may take 2 ms.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from localmem.files import read_yaml

_DIGITS = r"(?:\d{1,3}(?:[, \u00a0\u202f']\d{3})+(?:\.\d+)?|\d{1,2}(?:,\d\d)+,\d{3}|\d+(?:[.,]\d{1,2})?)"
_NEXT_WORD = re.compile(r"[\s-]?([^\W\d_]+(?:['’-][^\W\d_]+)*)")
_LAST_WORD = re.compile(r"([^\W\d_]+)[\s-]*$")
_SPOKEN_DIGITS = re.compile(
    r"\b\d{1,3} (?:one|two|three|four|five|six|seven|eight|nine|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|ten)\b"
    r"(?! times?\b)"
)
_LAKHS = re.compile(r"\d{1,2}(?:,\d\d)+,\d{3}")
_YEARS = range(1900, 2100)
_OF_AGE = re.compile(r"\b(?:s?he(?:['’]?s| is| was)|i['’]?m)\s?$", re.IGNORECASE)
_OF_CLOCK = re.compile(r"\s(?:at night|in the (?:morning|afternoon|evening))\b", re.IGNORECASE)
_AGED = re.compile(
    r"\b(?:(?:s?he|who)(?:['’]?s| is| was)|i(?:['’]?m| am)|aged?)(?: now| just| only)? (\d{1,2}|[a-z]+(?:[ -]"
    r"(?:one|two|three|four|five|six|seven|eight|nine))?)(?=(?: years? old| and| but| now)\b|[.,;!?)]|\s*$)",
    re.IGNORECASE,
)
_OLDEST = 110
_NOUNS = 3  # words after a number that may say what it counts
_FEW = 13  # a smaller number in words counts something only if a noun or a unit follows


class Amount(NamedTuple):
    """A number with its unit: a currency's sign, a measure's name, or "" for a count, whose `nouns` stand after it."""

    value: Fraction
    unit: str
    nouns: tuple[str, ...]
    words: str
    at: int


class _Tables(NamedTuple):
    currency: dict[str, str]  # sign or word -> sign
    measure: dict[str, str]  # word -> unit
    size: dict[str, tuple[str, Fraction]]  # unit -> dimension and size
    numbers: dict[str, int]
    scales: dict[str, int]
    lists: dict[str, frozenset[str]]
    pattern: re.Pattern[str]


@cache
def _tables() -> _Tables:
    table: dict[str, Any] = read_yaml(Path(__file__).with_suffix(".yaml"))
    rows = [(dimension, unit, *row) for dimension, units in table["measures"].items() for unit, row in units.items()]
    numbers = {word: value for value, word in enumerate(table["units"].split())}
    numbers |= {word: 10 * tens for tens, word in enumerate(table["tens"].split(), start=2)}
    scale, number = ("|".join(sorted(words, key=len, reverse=True)) for words in (table["scales"], numbers))
    sign = "|".join(map(re.escape, table["currencies"]))
    first = rf"(?:{number}|an? (?:hundred|thousand|dozen|grand)|hundred(?=\sand\s(?:{number})))"
    spelled = rf"{first}(?:[\s-](?:and\s)?(?:{number}|{scale}|a\shalf))*"
    pattern = rf"""
        (?P<sign>{sign})?\s?(?<![\w.,:/-])(?P<digits>{_DIGITS})(?P<half>\sand\sa\shalf)?
        (?P<scale>\s?(?:{scale})\b)?(?P<after>\s?(?:{sign}))?
        (?!:?\w|/(?!(?:h|hr|hour|day|week|month|year)\b)\w|[.,-]\d|\s?%|\s(?:{number})\b) |
        (?<!\d\s)\b(?P<spelled>{spelled})\b(?!['’]s\b)"""
    return _Tables(
        {word: sign for sign, text in table["currencies"].items() for word in (sign.lower(), *text.split())},
        {word: unit for _, unit, _, words in rows for word in words.split()},
        {unit: (dimension, Fraction(str(size))) for dimension, unit, size, _ in rows},
        numbers,
        table["scales"],
        {name: frozenset(table[name].split()) for name in ("not_nouns", "not_before", "not_after")},
        re.compile(pattern.replace("an? (", r"an?\s("), re.IGNORECASE | re.VERBOSE),
    )


def find_amounts(text: str) -> list[Amount]:
    """The exact amounts of a text in its order, without clocks, bare years, ages and numbers that are names."""
    return list(_find(text))


def has_spoken_price(text: str) -> bool:
    """Whether a text names a price as people speak it, which may be one of several: "two thirty five", "24 five"."""
    return _SPOKEN_DIGITS.search(text) is not None or any(
        match["spelled"] and _spelled_value(match["spelled"]) is None for match in _tables().pattern.finditer(text)
    )


def _find(text: str) -> Iterator[Amount]:
    tables = _tables()
    for match in tables.pattern.finditer(text):
        value = _read_value(match)
        if value is None:
            continue
        words = _following(text, match.end())
        sign = (match["sign"] or match["after"] or "").strip().lower()
        unit = tables.currency.get(sign or (words or [""])[0]) or tables.measure.get((words or [""])[0], "")
        nouns = tuple(word for word in words if word not in tables.lists["not_nouns"]) if not unit else ()
        previous = _LAST_WORD.search(text[max(0, match.start() - 20) : match.start()])
        amount = Amount(value, unit, nouns, match[0].strip(), match.end() - len(match[0].lstrip()))
        before = previous[1].lower() if previous else ""
        if not (unit or nouns) and _OF_CLOCK.match(text, match.end()):
            continue
        if _OF_AGE.search(text, 0, match.start()) and value < _OLDEST and not (unit or nouns) and words[:1] != ["a"]:
            continue
        if not _is_name(amount, before, words, spelled=bool(match["spelled"])):
            yield amount


def _following(text: str, at: int) -> list[str]:
    """The words right after a number, up to a mark of punctuation or a word that is no noun, that included."""
    words: list[str] = []
    while len(words) < _NOUNS and (match := _NEXT_WORD.match(text, at)):
        words.append(match[1].lower())
        if words[-1] in _tables().lists["not_nouns"]:
            break
        at = match.end()
    return words


def _is_name(amount: Amount, before: str, after: list[str], *, spelled: bool) -> bool:
    """Whether a number is a name, a clock's, an age, a year, or not exact."""
    lists = _tables().lists
    if not lists["not_after"].isdisjoint(after[:2]) or (before in lists["not_before"]):
        return True
    if amount.unit:
        return False
    if (spelled and not amount.nouns and amount.value < _FEW) or (before == "is" and after[:1] == ["since"]):
        return True
    is_year = amount.value in _YEARS and amount.words.isdecimal()
    return is_year or (before == "the" and not amount.nouns)


def _read_value(match: re.Match[str]) -> Fraction | None:
    return (
        _spelled_value(match["spelled"]) if match["spelled"] else _value(match["digits"], match["half"], match["scale"])
    )


def _value(digits: str, half: str | None, scale: str | None) -> Fraction:
    commas = "," if _LAKHS.fullmatch(digits) else r",(?=\d{3})"
    plain = re.sub(rf"[ \u00a0\u202f']|{commas}", "", digits).replace(",", ".")
    size = _tables().scales.get((scale or "").strip().lower(), 1)
    return (Fraction(plain) + Fraction(half is not None, 2)) * size


def _spelled_value(words: str) -> Fraction | None:
    """The value of number words, such as "six and a half grand"; none for a price as spoken, "two thirty five"."""
    tables = _tables()
    total, part, last = Fraction(0), Fraction(0), 0
    for word in re.split(r"[\s-]+", words.lower()):
        number = tables.numbers.get(word, 0)
        if number and last and not (last >= 20 and number < 10):
            return None
        if word in tables.numbers:
            part += number
        elif word == "half":
            part += Fraction(1, 2)
        elif (scale := tables.scales.get(word, 1)) >= 1000:
            total, part = total + (part or 1) * scale, Fraction(0)
        elif scale > 1:
            part = (part or Fraction(1)) * scale
        last = number
    return total + part


def find_ages(text: str) -> list[Amount]:
    """The ages that a text says somebody has, in years: "he's thirty", "who is 11"."""
    ages = [
        (Fraction(match[1]) if match[1].isdecimal() else _spelled_value(match[1]), match)
        for match in _AGED.finditer(text)
    ]
    return [Amount(value, "years", (), match[1], match.start(1)) for value, match in ages if value]


def dimension(unit: str) -> str:
    """What a unit measures; a currency measures itself, and a count nothing ("")."""
    return _tables().size[unit][0] if unit in _tables().size else unit


def convert(amount: Amount, unit: str) -> Fraction:
    """The amount's value in another unit of its dimension; one without a unit is taken to have this."""
    sizes = _tables().size
    return amount.value if amount.unit in ("", unit) else amount.value * sizes[amount.unit][1] / sizes[unit][1]


def is_currency(unit: str) -> bool:
    """Whether a unit is a currency."""
    return unit.lower() in _tables().currency


def write_amount(value: Fraction, unit: str, *, in_cents: bool = False) -> str:
    """An amount as people write it: "£1,250.50", "6.5 weeks"; `in_cents` without a unit: "2.90"."""
    number = f"{int(value):,}" if value.denominator == 1 else f"{float(value):,.2f}"
    number = number if is_currency(unit) or in_cents or "." not in number else number.rstrip("0")
    return f"{unit}{number}" if len(unit) == 1 and is_currency(unit) else f"{number} {unit}".strip()
