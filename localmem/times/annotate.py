"""Times beside the words that name them: "a week on Friday (21 November 2025)", and which of them were an end.

Dates are written in the language of the text; their forms, and the words of an end, stand in dates.yaml. Only what is
sure is written. Pure functions: knows no store and no model.
"""

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from localmem.files import read_yaml
from localmem.times.resolver import find_times, guess_language
from localmem.types import DateRange, Precision, TimeSpan, Turn, Unit

_CONTEXT = 6  # turns before, whose times settle "on the 9th"
_READ = 1200  # last characters that are read of each of them
_NEAR = 60  # characters between a time and the words of its end
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_BRACKETS = re.compile(r"\s*[(（]([^()（）]*)[)）]")
_SQUARE = str.maketrans("()（）", "[]［］")
_STOPS = ".!?…。！？"
_SENTENCE_END = re.compile(r"[.!?;\n。！？；](?=\s|$|[^\x00-\x7f])")


# -- finding


def with_spans(units: Sequence[Unit], turns: Sequence[Turn], day_first: bool | None = None) -> list[Unit]:
    """The units of a session with the times that their texts name; its `turns` settle what depends on earlier ones."""
    position = {turn.id: number for number, turn in enumerate(turns)}
    resolved: list[Unit] = []
    named: dict[tuple[str, ...], list[TimeSpan]] = {}  # in the units before, by their turns
    for unit in units:
        end = position[unit.sources[-1]]
        context = [
            span
            for turn in turns[max(0, end - _CONTEXT) : end]
            for span in _find(turn.text[-_READ:], turn.time.date(), (), day_first)
        ]
        own = named.setdefault(unit.sources, [])
        spans = _find_in(unit, (*context, *own), day_first)
        resolved.append(replace(unit, spans=spans))
        own += spans
    return resolved


def spans_of(unit: Unit) -> tuple[TimeSpan, ...]:
    """The times that a unit's text names, for any unit: those of one that came without are found now."""
    return _find_in(unit, (), None) if unit.spans is None else unit.spans


def _find_in(unit: Unit, context: tuple[TimeSpan, ...], day_first: bool | None) -> tuple[TimeSpan, ...]:
    """The spans of a unit by its own day. A speaker's name before its text is none, whether it is May or June."""
    start = unit.text.find(": ") + 2 if unit.speaker and unit.text.startswith(unit.speaker) else 0
    spans = _find(unit.text[start:], unit.time.date(), context, day_first)
    return tuple(replace(span, at=span.at + start) for span in spans) if start else spans


@lru_cache(maxsize=1024)
def _find(text: str, day: date, context: tuple[TimeSpan, ...], day_first: bool | None) -> tuple[TimeSpan, ...]:
    return tuple(find_times(text, day, context, day_first=day_first))


def without(unit: Unit, passage: str, mark: str) -> Unit:
    """The unit with `mark` in place of a passage of its text; times in it go, and those after it move."""
    text, spans, start = unit.text, unit.spans, unit.text.find(passage)
    while start >= 0:
        end, moved = start + len(passage), len(mark) - len(passage)
        text = text[:start] + mark + text[end:]
        spans = spans and tuple(
            replace(span, at=span.at + moved * (span.at >= end)) for span in spans if not start <= span.at < end
        )
        start = text.find(passage, start + len(mark))
    return replace(unit, text=text, spans=spans)


def mark_sentence(unit: Unit, sentence: str, mark: str) -> Unit:
    """The unit with a mark at the end of a sentence of its text, before the stop; the times after it move."""
    start = unit.text.find(sentence)
    if start < 0:
        return unit
    at, mark = start + len(sentence.rstrip(_STOPS)), f" {mark}"
    spans = unit.spans and tuple(replace(span, at=span.at + len(mark) * (span.at >= at)) for span in unit.spans)
    return replace(unit, text=f"{unit.text[:at]}{mark}{unit.text[at:]}", spans=spans)


# -- showing


def show_times(unit: Unit, today: date) -> str:
    """The unit's text with dates behind the times that it names, where neither words nor brackets say them in full.

    Times at which something ended before `today` are said to be past.
    """
    spans = _sure_spans(unit.text, [span for span in spans_of(unit) if unit.text.startswith(span.words, span.at)])
    if not spans:
        return unit.text
    text, form = unit.text, _form(language_of(unit.text))
    code = [match.span() for match in _CODE.finditer(text)]
    brackets = [match.span(1) for match in _BRACKETS.finditer(text)]
    ends = list(_ends(unit, spans, form))
    for span in sorted(spans, key=lambda span: -span.at):
        if _is_within(span, code):
            continue
        dates = "" if _says_all(span) else form.write(span.readings[0], span.precision)
        past = form.past if span in ends and span.readings[0].last < today else ""
        if note := ", ".join(filter(None, (dates, past))):
            end = span.at + len(span.words)
            template = form.brackets
            if _is_within(span, brackets):  # brackets do not nest
                template = ", {}" if end in {last for _, last in brackets} else template.translate(_SQUARE)
            text = text[:end] + template.format(note) + text[end:]
    return text


def _sure_spans(text: str, spans: Sequence[TimeSpan]) -> list[TimeSpan]:
    """The sure times, but for those that brackets behind them date; the time in these is sure by the one before."""
    by_place = {span.at: span for span in spans}
    for span in filter(_is_sure, spans):
        brackets = _BRACKETS.match(text, span.at + len(span.words))
        if brackets is None or _says_all(span):
            continue
        start, end = brackets.span(1)
        for other in (other for other in spans if start <= other.at < end and not other.repeats):
            is_date = other.at == start and _is_sure(other) and _says_all(other)
            if is_date or span.readings[0] in other.readings:
                del by_place[span.at]
                by_place[other.at] = other if _is_sure(other) else replace(other, readings=span.readings)
                break
    return [span for span in by_place.values() if _is_sure(span)]


def _is_within(span: TimeSpan, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= span.at < end for start, end in ranges)


def over_since(unit: Unit, today: date) -> date | None:
    """The day on which the last end that a unit names had come before `today`; None while one is ahead or unknown."""
    spans = [span for span in spans_of(unit) if _is_sure(span)]
    days = [span.readings[0].last for span in _ends(unit, spans, _form(language_of(unit.text)))] if spans else []
    return max(days) if days and max(days) < today else None


def write_dates(dates: DateRange, language: str = "en") -> str:
    """Days as people write them: "21 November 2025", "15 to 21 November 2025", "November 2025", "2025"."""
    return _form(language).write(dates)


def language_of(text: str) -> str:
    """The language to write dates in: English for a text without accents where nothing decides."""
    return guess_language(text) or ("en" if text.isascii() else "")


def _is_sure(span: TimeSpan) -> bool:
    return len(span.readings) == 1 and not span.repeats


def _ends(unit: Unit, spans: Sequence[TimeSpan], form: "_Form") -> Iterator[TimeSpan]:
    """The times at which something ends that had not ended when it was said."""
    said = unit.time.date()
    for span in spans:
        if span.readings[0].last > said and (span.role in ("until", "for") or form.is_end(unit.text, span)):
            yield span


def _says_all(span: TimeSpan) -> bool:
    """Whether the words hold the year, and the day where they name one."""
    numbers = {int(number) for number in re.findall(r"\d+", span.words)}
    first, last = span.readings[0]
    if first.year not in numbers or last.year not in numbers:
        return False
    return span.precision in ("month", "year") or (span.precision == "day" and {first.day, last.day} <= numbers)


class _Form(BaseModel):
    """How a language writes dates; see dates.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    months: str
    dmy: str
    dm: str
    d: str
    my: str
    m: str
    y: str
    range: str
    short: Literal["first", "last", "none"]
    brackets: str
    past: str
    ends: str = "(?!)"
    no_end: str = "(?!)"

    def write(self, dates: DateRange, precision: Precision = "day") -> str:
        """The days of a range, as years or months where it holds whole ones or is no more precise."""
        first, last = dates
        shape = {"year": "y", "season": "my", "month": "my"}.get(precision, "dmy")
        if shape == "dmy" and first.day == 1 and last.day == monthrange(last.year, last.month)[1]:
            shape = "y" if (first.month, last.month) == (1, 12) else "my"
        complete = [self._write(moment, shape) for moment in dates]
        if complete[0] == complete[1]:
            return complete[0]
        short = shape
        if first.year == last.year and shape != "y":
            short = "d" if shape == "dmy" and first.month == last.month else shape.removesuffix("y")
        sides = {"none": (shape, shape), "first": (short, shape), "last": (shape, short)}[self.short]
        return self.range.format(first=self._write(first, sides[0]), last=self._write(last, sides[1]))

    def _write(self, moment: date, shape: str) -> str:
        template: str = getattr(self, shape)
        return template.format(day=moment.day, month=self.months.split()[moment.month - 1], year=moment.year)

    def is_end(self, text: str, span: TimeSpan) -> bool:
        """Whether something ends at a time, by the words around it in its sentence."""
        before, after = text[: span.at], text[span.at + len(span.words) :]
        starts = [match.end() for match in _SENTENCE_END.finditer(before)]
        stop = _SENTENCE_END.search(after)
        before = before[starts[-1] if starts else 0 :][-_NEAR:]
        after = after[: stop.start() if stop else None][:_NEAR]
        return bool(_pattern(self.ends).search(f"{before}…{after}") and not _pattern(self.no_end).search(before))


@cache
def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{words.replace(' | ', '|')})(?!\w)", re.IGNORECASE)


@cache
def _form(language: str) -> _Form:
    table = read_yaml(Path(__file__).with_name("dates.yaml"))
    return _Form.model_validate(table.get(language) or table[""])
