"""English texts as the words of the grammar of times: what kind each is, and what number stands for it.

The lexicon is in english.yaml, what stands about times in english_context.yaml. Every word that the
grammar names has a character of its own, so that a rule is a regular expression over one character a word.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from localmem.files import read_yaml

OTHER = "_"  # the kind of a word that no rule names
_FIRST_KIND = 0xE000  # kinds are characters of a private area
_KINDS: dict[str, str] = {}


class Word(NamedTuple):
    """A word of a text, or what is between two: where it stands, its spelling, kind, class, number and name."""

    start: int
    end: int
    text: str
    kind: str
    group: str = ""
    value: int = 0
    name: str = ""


class Entry(NamedTuple):
    """A word of the lexicon: one name for all its spellings, its class and its number."""

    name: str
    group: str
    value: int


@cache
def load_grammar() -> Mapping[str, Any]:
    """What english.yaml and english_context.yaml hold."""
    files = (Path(__file__).with_name(name) for name in ("english.yaml", "english_context.yaml"))
    return {key: value for file in files for key, value in read_yaml(file).items()}


@cache
def common_words(names: str) -> frozenset[str]:
    """The common words of "english", or of the "others" that are written in the same letters."""
    return frozenset(load_grammar()["common"][names].split())


@cache
def load_lexicon() -> Mapping[str, Entry]:
    """The entries of english.yaml by their spellings."""
    lexicon: dict[str, Entry] = {}
    for group, words in load_grammar()["words"].items():
        for word in words.split():
            name, _, value = word.partition("=")
            number, *spellings = value.split("/")
            for spelling in (name, *spellings):
                for variant in _with_apostrophes(spelling.replace("_", " ")):
                    lexicon[variant] = Entry(name, group, int(number))
    return lexicon


def _with_apostrophes(spelling: str) -> Sequence[str]:
    """A spelling, and the others that people write for "father's day"."""
    endings = ("'s ", "s ", "s' ") if "'s " in spelling else ("",)
    return [spelling.replace("'s ", ending) if ending else spelling for ending in endings]


@cache
def _load_spellings() -> Mapping[str, str]:
    """The usual spelling of each word that people write otherwise."""
    groups = (group.partition("=") for group in load_grammar()["spellings"].split())
    return {other: standard for standard, _, others in groups for other in others.split("/")}


@cache
def words_beside(names: str) -> frozenset[str]:
    """A list of english_context.yaml of words that stand beside times."""
    return frozenset(load_grammar()["beside"][names].split())


def kind_of(name: str) -> str:
    """The character that stands for a word of the lexicon, or for a literal word of a rule."""
    return _KINDS.setdefault(name, chr(_FIRST_KIND + len(_KINDS)))


@cache
def _known_words() -> frozenset[str]:
    return frozenset({*load_lexicon(), *_load_spellings(), "the", "my"})


@cache
def _scanner() -> re.Pattern[str]:
    spellings = [spelling for spelling in (*load_lexicon(), *_load_spellings()) if not _PLAIN.match(spelling)]
    by_letter: dict[str, list[str]] = {}
    for spelling in sorted(spellings, key=len, reverse=True):
        by_letter.setdefault(spelling[0], []).append(_escape_rest(spelling))
    phrases = "|".join(f"{re.escape(letter)}(?:{'|'.join(rest)})" for letter, rest in by_letter.items())
    return re.compile(
        rf"(?P<phrase>\b(?:{phrases})\b)"
        r"|(?P<word>[^\W\d_]+(?:'[^\W\d_]+)*)|(?P<number>\d\w*(?:[.,:/-]\d\w*)*)"
    )


_PLAIN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*$")  # a spelling that is read as one word without more ado


def _escape_rest(spelling: str) -> str:
    """All but the first letter, with the stop that may stand in "St. Patrick's Day"."""
    return ("t\\.?" + re.escape(spelling[2:])) if spelling.startswith("st ") else re.escape(spelling[1:])


_GAP = re.compile(r"[.!?;:\n()\[\]|…—\"“”*#]|,|[-–]|/")
_NUMBERS = (
    ("ISO", re.compile(r"\d{4}([-/.])\d\d?\1\d\d?$")),
    ("SLASHED", re.compile(r"(?P<a>\d\d?)(?P<by>[/.-])\d\d?(?P=by)(?:\d{4}|\d\d)$")),
    ("DOTTED", re.compile(r"\d\d?\.(?:0[1-9]|1[0-2])$")),
    ("MONTHYEAR", re.compile(r"(?:0?[1-9]|1[0-2])[/.-](?:19|20)\d\d$")),
    ("FRACTION", re.compile(r"\d\d?/\d\d?$")),
    ("ORDINAL", re.compile(r"(?P<value>[0-3]?\d)(?:st|nd|rd|th)$")),
    ("YEAR", re.compile(r"(?P<value>(?:19|20)\d\d)$")),
    ("SMALL", re.compile(r"(?P<value>0?[1-9]|[12]\d|3[01])$")),
    ("LARGE", re.compile(r"(?P<value>\d{2,3})$")),
    ("LONG", re.compile(r"(?P<value>(?:19|20)\d0)'?s$")),
    ("SHORT", re.compile(r"(?P<value>[2-9]0)'?s$")),
)
_BEFORE_AMOUNT = frozenset("£$€#@_+.")
_AFTER_AMOUNT = frozenset("%°£€$+")
# A number with a range in it, "6-10", is two numbers.
_JOINED = re.compile(r"(\d{1,3})(days|wks?|weeks?|yrs?|years?|mos|months?|mths?)$")
_RANGE = re.compile(
    r"(\d\d?(?:st|nd|rd|th)?)-(\d\d?(?:st|nd|rd|th)?)$|((?:19|20)\d\d)-((?:19|20)\d\d)$|\d\d?/\d\d?-\d\d?/\d\d?$"
)


@lru_cache(maxsize=256)  # a turn is read again as what came before the next ones
def read_words(text: str) -> tuple[Word, ...]:
    """The words and signs of a text, in order. Names such as "May" or "Sat" count as times only beside other words."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few capitals have longer small letters
        lowered = "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)
    lowered = lowered.replace("’", "'")
    words: list[Word] = []
    end = 0
    known = _known_words()
    for match in _scanner().finditer(lowered):
        start, last = match.span()
        if start != end and (start != end + 1 or lowered[end] != " "):
            _add_gap(words, lowered, end, start)
        end = last
        if match.lastgroup == "number" and start and lowered[start - 1].isalpha() and not words[-1].group:  # "EL1"
            words.append(Word(start, end, match[0], OTHER))
            continue
        if match.lastgroup == "number":
            words.extend(_read_number(lowered, start, end))
            if lowered[end : end + 1] == "." and _is_day_by_stop(words):
                words[-1] = words[-1]._replace(kind=kind_of("NTH"), group="ORDINAL", name="NTH")
            continue
        text = match[0]
        if text not in known and "'" not in text and "." not in text:
            words.append(Word(start, end, text, _KINDS.get(text, OTHER)))
            continue
        words.append(_read_word(text, start))
        _spell_number(words)
        _drop_stop_of_day(words)
    _add_gap(words, lowered, end, len(lowered))
    return tuple(words)


def _add_gap(words: list[Word], text: str, start: int, end: int) -> None:
    gap = text[start:end]
    if gap == " " or not gap:
        return
    match = _GAP.search(gap)
    sign = match[0] if match else ""
    if sign == "." and gap.startswith(".") and words and words[-1].group == "DOTTED":
        return
    if sign == "." and words and _is_abbreviation(words[-1], gap, text[end : end + 1]):
        return
    if sign:
        words.append(Word(start, end, gap, "-" if sign == "–" else sign if sign in ",-/" else "."))
    elif "&" in gap:
        words.append(Word(start, end, "and", kind_of("and")))


def _is_day_by_stop(words: Sequence[Word]) -> bool:
    """Whether the last word is a day as in "on the 10.", as people write whose own language has it."""
    if len(words) < 3 or words[-1].group != "SMALL" or words[-2].text != "the":
        return False
    return words[-3].text in words_beside("days_before")


def _drop_stop_of_day(words: list[Word]) -> None:
    """Take the stop out of "on the 7. March", as people write whose own language has it."""
    if words[-1].group != "MONTH" or len(words) < 4:
        return
    lead, number, stop = words[-4:-1]
    leads = lead.group == "WEEKDAY" or lead.text in ("the", "and", "to", *words_beside("days_before"))
    if leads and number.group in ("SMALL", "ORDINAL") and stop.text in (". ", "."):
        del words[-2]


def _is_abbreviation(word: Word, gap: str, following: str) -> bool:
    return gap == ". " and word.group in ("WEEKDAY", "MONTH") and len(word.text) < 5 and following.isdigit()


def _read_word(text: str, start: int) -> Word:
    lexicon, end = load_lexicon(), start + len(text)
    text = _load_spellings().get(text, text)
    entry = lexicon.get(text) or (lexicon.get(text.replace(".", "")) if "." in text else None)
    if entry is None and text.endswith("'s"):
        entry = lexicon.get(text[:-2])
        if entry is not None and entry.group == "COUNT":
            entry = None
        text, end = (text, end) if entry is None else (text[:-2], end - 2)
    if entry is None:
        return Word(start, end, text, _KINDS.get(text, OTHER))
    return Word(start, end, text, kind_of(entry.name), entry.group, entry.value, entry.name)


_DIGIT_WORDS = {"4": "for", "2": "to"}
_AFTER_DIGIT = frozenset({"NEAR", "LAST", "THIS", "NEXT"})


def _spell_number(words: list[Word]) -> None:
    """Read "4" and "2" as words where the last two words say so: "booked 4 the 11th", "moved 2 next week"."""
    if len(words) < 3 or words[-2].text not in _DIGIT_WORDS or words[-2].group != "SMALL":
        return
    leads = words[-1].group in _AFTER_DIGIT or words[-1].text in ("the", "my")
    if leads and words[-3].kind == OTHER and words[-3].text.isalpha():
        text = _DIGIT_WORDS[words[-2].text]
        words[-2] = words[-2]._replace(text=text, kind=_KINDS.get(text, OTHER), group="", value=0, name="")


def _read_number(text: str, start: int, end: int) -> list[Word]:
    number = text[start:end]
    amount = text[start - 1 : start] in _BEFORE_AMOUNT or (text[end : end + 1] in _AFTER_AMOUNT and end < len(text))
    if not amount:
        if match := _JOINED.match(number):  # "3wks"
            middle = start + match.end(1)
            return [*_read_number(text, start, middle), _read_word(match[2], middle)]
        if match := _RANGE.match(number):
            middle = start + number.index("-")
            dash = Word(middle, middle + 1, "-", "-")
            return [*_read_number(text, start, middle), dash, *_read_number(text, middle + 1, end)]
        if text[start - 1 : start] == "'" and len(number) == 2 and number.isdigit():
            year = int(number) + (1900 if number >= "30" else 2000)
            return [Word(start, end, number, kind_of("YEAR"), "YEAR", year, "YEAR")]
        for group, pattern in _NUMBERS:
            if match := pattern.match(number):
                value = int(match["value"]) if "value" in pattern.groupindex else 0
                name = "NTH" if group == "ORDINAL" else group
                return [Word(start, end, number, kind_of(name), group, value, name)]
    return [Word(start, end, number, OTHER)]


def names_of(group: str) -> Sequence[str]:
    """The names of the words of a class; of a class of numbers, its own."""
    names = [entry.name for entry in load_lexicon().values() if entry.group == group]
    numbers = ["NTH"] if group == "ORDINAL" else [group] if not names else []
    return list(dict.fromkeys(names + numbers))
