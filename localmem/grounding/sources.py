"""What a statement names that its sources do not: names, numbers and dates. Decided by words alone, without a model.

Honest text must pass, in any language, so every rule gives way where it cannot be sure. Words that begin a sentence are
no names; a language that capitalises its nouns is searched only for the names that are `foreign` (those of a prompt's
examples); a number may be written in words, as a time of day of 12 or 24 hours, or be a small count; a date may follow
from the day on which something was said ("yesterday"), and a year from an age.
"""

import re
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Literal

from localmem.text.parse import fold, space_characters, words

Claim = tuple[Literal["name", "number", "date"], str]

_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_OPENING = " \t*_#>-–—•\"'“”‘’«»„(["  # what may stand between the end of a sentence and the next word
_SMALL = 10  # a count that a reader may have made: two sons and a daughter are 3 children
_NEAR = timedelta(days=31)  # "last week", "in a fortnight"


@dataclass(frozen=True)
class Sources:
    """What a statement was made of: a text, and the days on which it was said.

    `foreign` are words (folded) that are names whatever the language, unless the text holds them.
    """

    text: str
    days: Sequence[date] = ()
    foreign: Set[str] = frozenset()

    def missing(self, statement: str) -> Claim | None:
        """The first name, number or date of a statement that is not in the sources; None if they hold all."""
        text = self._without_near_dates(statement)
        for month in _months(text):
            if self.days and month not in self._months:
                return "date", text
        for name in self._names(text):
            return "name", name
        for match in _NUMBER.finditer(text):
            if not all(self._holds_number(part) for part in _numbers(match[0])):
                return ("date" if _YEAR.fullmatch(match[0]) else "number"), match[0]
        return None

    def holds(self, word: str) -> bool:
        """Whether a word (folded) occurs, perhaps with a short ending."""
        return word in self.words or any(
            _longer_by_ending(word, other) or _longer_by_ending(other, word) for other in self.words
        )

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of the text, folded; those of a compound with a hyphen both together and apart."""
        matches = [fold(match) for match in _WORD.findall(space_characters(self.text))]
        return frozenset([*matches, *(part for word in matches for part in re.split("[-']", word))])

    # -- names

    def _names(self, statement: str) -> Iterator[str]:
        capitalises_nouns = len(_GERMAN & {*words(statement), *self.words}) > 3
        for match in _WORD.finditer(statement := space_characters(statement)):
            if not match[0][0].isupper():
                continue
            for part in filter(None, re.split("-", match[0])):
                name = fold(part)
                if name in _NO_NAMES:
                    continue
                if (name in self.foreign and not self.holds(name)) or (
                    not capitalises_nouns and _is_name(statement, match) and not self._resembles(name)
                ):
                    yield part

    def _resembles(self, name: str) -> bool:
        """Whether the sources hold a word of this stem: Italy for Italian."""
        if len(name) < 3 or self.holds(name):
            return True
        return any(other[:4] == name[:4] for other in self.words) or name in self._letters

    @cached_property
    def _letters(self) -> str:
        return "".join(filter(str.isalnum, fold(self.text)))

    # -- numbers

    def _holds_number(self, number: str) -> bool:
        integer, _, fraction = number.partition(".")
        if number in self._numbers or (fraction and {integer, str(int(fraction.ljust(2, "0")))} <= self._numbers):
            return True
        value = float(number)
        if value <= _SMALL or any(value == hour + 12 for hour in self._values if hour < 13):
            return True
        if any(value == hour - 12 for hour in self._values if 12 < hour < 25):
            return True
        return 1900 < value < 2100 and any(
            abs(value - day.year) <= 1 or abs(value - day.year) in self._values for day in self.days
        )

    @cached_property
    def _numbers(self) -> frozenset[str]:
        text = re.sub(r"(?<=\d), (?=\d{3}\b)", ",", self.text)
        written = {part for match in _NUMBER.findall(text) for part in (*_numbers(match), *_parts(match))}
        return frozenset(written | {str(value) for value in _spelled_numbers(self.text)})

    @cached_property
    def _values(self) -> frozenset[float]:
        return frozenset(map(float, self._numbers))

    # -- dates

    @cached_property
    def _months(self) -> frozenset[int]:
        near = {(day.month + step) % 12 + 1 for day in self.days for step in (-2, -1, 0)}
        return frozenset({*_months(self.text), *near, *(int(v) for v in self._values if v in range(1, 13))})

    def _without_near_dates(self, statement: str) -> str:
        """The statement without the dates that a speaker may have meant by naming no date."""
        for pattern in _DATES:
            for match in list(pattern.finditer(statement)):
                named = _date(match, self.days)
                if named and any(abs(named - day) <= _NEAR for day in self.days):
                    statement = statement.replace(match[0], " ")
        return statement


def _is_name(text: str, match: re.Match[str]) -> bool:
    """Whether a capitalised word is a name by its place: inside a sentence, or anywhere where nothing else has case."""
    if space_characters(text) != text:
        return True
    before = text[: match.start()].rstrip(_OPENING)
    opened = text[len(before) : match.start()]
    return bool(before) and before[-1] not in ".!?:;…\n" and not set(opened) & set('"“«„')


def _longer_by_ending(short: str, long: str) -> bool:
    return len(short) > 2 and len(short) < len(long) <= len(short) + 2 and long.startswith(short)


# -- numbers in words


def _numbers(written: str) -> list[str]:
    """The numbers of "1,000", "7:30", "3.5" in one form: thousands joined, a decimal point, no leading zeros."""
    if re.fullmatch(r"\d{1,3}(?:(?:\.\d{3})+|(?:,\d{3})+)", written):
        return [re.sub("[.,]", "", written)]
    amount = re.fullmatch(r"(\d+|\d{1,3}(?:(?:\.\d{3})+(?=,)|(?:,\d{3})+(?=\.)))(?:[.,](\d+))?", written)
    if amount is None or len(written) > 15:
        return _parts(written)
    integer, fraction = re.sub("[.,]", "", amount[1]), amount[2] or "0"
    return [f"{Decimal(f'{integer}.{fraction}').normalize():f}"]


def _parts(written: str) -> list[str]:
    return [str(int(part)) for part in re.findall(r"\d{1,15}", written)]


_UNITS = """\
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen \
eighteen nineteen twenty
null eins zwei drei vier funf sechs sieben acht neun zehn elf zwolf dreizehn vierzehn funfzehn sechzehn siebzehn \
achtzehn neunzehn zwanzig
zero un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit \
dix-neuf vingt
cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciseis diecisiete \
dieciocho diecinueve veinte"""
_TENS = """\
thirty forty fifty sixty seventy eighty ninety
dreissig vierzig funfzig sechzig siebzig achtzig neunzig
trente quarante cinquante soixante septante huitante nonante
treinta cuarenta cincuenta sesenta setenta ochenta noventa"""
_SPELLED: dict[str, float] = {
    **{word: n for line in _UNITS.splitlines() for n, word in enumerate(line.split())},
    **{word: 10 * n for line in _TENS.splitlines() for n, word in enumerate(line.split(), start=3)},
    **dict.fromkeys(("hundred", "hundert", "cent", "cents", "cien", "dozens"), 100),
    **dict.fromkeys(("thousand", "tausend", "mille", "mil", "grand", "k"), 1000),
    **dict.fromkeys(("million", "millionen", "millions", "millon"), 1_000_000),
    **dict.fromkeys(("half", "halb", "demi", "demie", "media"), 30),
    "quarter": 15,
    "viertel": 15,
    "quart": 15,
    "dozen": 12,
    "dutzend": 12,
    "ein": 1,
    "eine": 1,
    "a": 1,
    "an": 1,
    "twice": 2,
    "couple": 2,
    "vingts": 20,
    "noon": 12,
    "midnight": 0,
    "fortnight": 14,
    "hundreds": 100,
}
_GERMAN_COMPOUND = re.compile(r"([a-z]+?)und([a-z]+(?:zig|ssig))")
_LONGEST_HAN = 20  # signs of a numeral
_HAN = dict(
    zip("零〇一二两三四五六七八九十百千万", (0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100, 1000, 10000), strict=True)
)


def _spelled_numbers(text: str) -> Iterator[int]:
    """The values of number words, of each alone and of neighbours together: "two", "hundred", "two hundred"."""
    tokens = [part for word in re.findall(r"[^\W_]+(?:-[^\W_]+)*|[^\s\w]", text) for part in _number_words(fold(word))]
    run: list[float] = []
    for token in [*tokens, None]:
        if token is not None:
            run.append(token)
            continue
        for start in range(len(run)):
            yield from {int(_total(run[start:end])) for end in range(start + 1, min(len(run), start + 6) + 1)}
        yield from (100 * int(early) + int(late) for early, late in _centuries(run))
        run = []
    for match in re.findall(f"[{''.join(_HAN)}]+", text):
        yield _han(match[:_LONGEST_HAN])
    if re.search("half|halb|demi|media|半", text):
        yield from (30, 50, 6)
    if re.search("quarter|viertel|quart", text):
        yield from (15, 45, 25)


def _number_words(word: str) -> list[float | None]:
    """The values of a word, or [None] for a word that is no number; "and" stands inside numbers."""
    if word in ("and", "und", "et", "y"):
        return []
    compound = _GERMAN_COMPOUND.fullmatch(word)
    parts = [word] if word in _SPELLED else compound.groups() if compound else word.split("-")
    if word.isdecimal() and len(word) < 10:
        return [float(word)]
    return [_SPELLED.get(part) for part in parts]


def _centuries(run: Sequence[float]) -> Iterator[tuple[float, float]]:
    """The halves of years such as "nineteen eighty-four"."""
    for start in range(1, len(run)):
        if 12 < run[start - 1] < 22:
            yield from {(run[start - 1], _total(run[start:end])) for end in (start + 1, start + 2)}


def _total(run: Sequence[float]) -> float:
    total = current = 0.0
    for value in run:
        if value >= 100 or (value == 20 and current == 4):  # quatre-vingts
            current = max(current, 1) * value
        else:
            current += value
        if value >= 1000:
            total, current = total + current, 0
    return total + current


def _han(numeral: str) -> int:
    if not set(numeral) & set("十百千万"):
        return int("".join(str(_HAN[sign]) for sign in numeral)[:9])
    total = digit = 0
    for sign in numeral:
        if _HAN[sign] < 10:
            digit = _HAN[sign]
        else:
            total, digit = (total + digit) * 10000 if sign == "万" else total + max(digit, 1) * _HAN[sign], 0
    return total + digit


# -- dates

_MONTH_NAMES = (
    "january february march april may june july august september october november december",
    "januar februar marz april mai juni juli august september oktober november dezember",
    "janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
)
_MONTHS = {word: n for line in _MONTH_NAMES for n, word in enumerate(line.split(), start=1)}
_DAY, _LETTERS, _YEAR_PART = r"(?P<day>\d{1,2})", r"(?P<month>[^\W\d_]{3,10})", r"(?:,?\s+(?:de\s+)?(?P<year>\d{4}))?"
_DATES = (
    re.compile(r"\b(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)\b"),
    re.compile(rf"\b{_DAY}(?:st|nd|rd|th|er|\.|º)?\s+(?:of\s+|de\s+)?{_LETTERS}\b{_YEAR_PART}"),
    re.compile(rf"\b{_LETTERS}\s+(?:the\s+)?{_DAY}(?:st|nd|rd|th)?\b{_YEAR_PART}"),
    re.compile(r"(?:(?P<year>\d{4})年)?(?P<month>\d{1,2})月(?P<day>\d{1,2})[日号]"),
)
_ALSO_VERBS = frozenset(["may", "march", "mars"])
_YEAR = re.compile(r"(?:19|20)\d\d")


def _date(match: re.Match[str], days: Sequence[date]) -> date | None:
    month = int(match["month"]) if match["month"].isdecimal() else _MONTHS.get(fold(match["month"]), 0)
    years = [int(match["year"])] if match["year"] else sorted({day.year + step for day in days for step in (-1, 0, 1)})
    matches = []
    for year in years:
        with suppress(ValueError):  # 29 February is in some years only
            matches.append(date(year, month, int(match["day"])))
    return min(matches, key=lambda named: min(abs(named - day) for day in days), default=None) if days else None


def _months(text: str) -> Iterator[int]:
    """The months that a text names; "may" and "march" only where a capital inside a sentence shows them to be one."""
    for match in _WORD.finditer(text):
        word = fold(match[0])
        if word in _MONTHS and (word not in _ALSO_VERBS or (match[0][0].isupper() and _is_name(text, match))):
            yield _MONTHS[word]


# -- capitals that name nobody

_GERMAN_WORDS = "der das und nicht ist ich ein eine mit den zu sie wir auf fur im dem ihre seine hat"
_GERMAN = frozenset(_GERMAN_WORDS.split())
_NAMELESS = """i mr mrs ms dr ok tv user assistant monday tuesday wednesday thursday friday saturday sunday christmas
easter thanksgiving new year english internet god sir madam mom mum dad mother father grandma grandpa"""
_NO_NAMES = frozenset([*_NAMELESS.split(), *_MONTHS])
