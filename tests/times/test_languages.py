"""Times in languages other than English: what each expression means, what names no time, and other languages."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
import yaml

from localmem.times.languages import detect_language, find_times
from localmem.times.languages.grammar import Language, language_names
from localmem.times.languages.meanings import MEANINGS
from localmem.types import TimeSpan

DAY = date(2025, 10, 15)  # a Wednesday
LANGUAGES = language_names()
NEEDED = {  # by meaning, the values without which it has none
    "offset": "offset", "ago": "number unit", "ahead": "number unit", "since": "number unit", "lasting": "number unit",
    "period": "shift period", "weekday": "weekday", "weekday_and_day": "weekday day", "day_of_month": "day",
    "date": "day month", "dates": "day to month", "nth_weekday": "ordinal weekday month", "part": "part",
    "season": "season", "holiday": "holiday", "decade": "decade",
}  # fmt: skip
TABLE = yaml.safe_load(Path(__file__).with_name("languages.yaml").read_text(encoding="utf-8"))


def _cases() -> Iterator[tuple[str, str, str]]:
    for language, rows in TABLE.items():
        yield from ((language, text, times) for text, times in rows.items())


def _describe(span: TimeSpan) -> str:
    readings = "|".join(f"{first}..{last}" if first != last else str(first) for first, last in span.readings)
    role = f" {span.role} {span.repeats}".rstrip() if span.repeats or span.role != "at" else ""
    return f"{span.words} = {readings} {span.precision}{role}"


@pytest.mark.parametrize(("language", "text", "times"), list(_cases()))
def test_what_is_said_means_these_days(language: str, text: str, times: str) -> None:
    spans = find_times(text, DAY, (), language)
    assert "; ".join(map(_describe, spans)) == times
    assert all(text[span.at :].startswith(span.words) for span in spans)


def _say(language: str, *turns: str) -> list[str]:
    """The times of the last of some turns of one session."""
    context: list[TimeSpan] = []
    for turn in turns[:-1]:
        context += find_times(turn, DAY, context, language)
    return [_describe(span) for span in find_times(turns[-1], DAY, context, language)]


def test_a_day_is_of_the_month_that_was_named_before() -> None:
    assert _say("fr", "J'ai rendez-vous le 21 mars à la banque.", "Courage pour le 21.") == [
        "pour le 21 = 2026-03-21 day"
    ]
    assert _say("de", "Im Dezember habe ich Urlaub.", "Toll.", "Am 9. geht es los.") == ["Am 9. = 2025-12-09 day"]
    assert _say("zh", "比赛是6月15号", "推到17号了") == ["17号 = 2026-06-17 day"]


def test_a_day_is_the_nearest_where_several_months_were_named() -> None:
    turns = ("Premiere ist am 29. November.", "Nein, am 6. Dezember.", "Sie heiratet am 31.")
    assert _say("de", *turns) == ["am 31. = 2025-10-31 day"]
    assert _say("fr", "Le 10 mars, ou en juin.", "Les parcs, c'est le 14 et le 17.") == []


def test_a_day_out_of_the_calendar_is_none() -> None:
    assert find_times("Vor 5000 Jahren war hier Wald", DAY, (), "de") == []
    assert find_times("in 999 Jahren", date(9500, 1, 1), (), "de") == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Ich war gestern beim Arzt", "de"),
        ("on y va demain", "fr"),
        ("nos vemos el martes que viene", "es"),
        ("ci vediamo martedì prossimo", "it"),
        ("vejo você na próxima terça-feira", "pt"),
        ("ik zie je volgende week", "nl"),
        ("下周见", "zh"),
        ("来週の木曜に会おう", "ja"),
        ("сдать до пятницы", "ru"),
        ("oddać do piątku", "pl"),
        ("cumaya kadar bitirmem lazım", "tr"),
        ("السنة الماضية كنا بروما", "ar"),
        ("다음 주에 봐", "ko"),
        ("go on then, make them wonder", "en"),
        ("1234", ""),
    ],
)
def test_the_language_is_guessed(text: str, language: str) -> None:
    assert detect_language(text) == language


@pytest.mark.parametrize(
    ("language", "text"),
    [("es", "una casa junto al mar."), ("pt", "uma casa perto do mar."), ("it", "una casa in riva al mar.")],
)
def test_the_sea_at_the_end_of_a_sentence_is_no_march(language: str, text: str) -> None:
    assert find_times(text, DAY, (), language) == []


def test_other_languages_have_no_times() -> None:
    assert find_times("i morgon", DAY, (), "sv") == []
    assert find_times("", DAY) == []


@pytest.mark.parametrize("name", LANGUAGES)
def test_every_pattern_has_what_its_meaning_needs(name: str) -> None:
    language = Language(name)
    patterns = [pattern for _, group in language._groups for pattern in group]
    for pattern in patterns:
        assert pattern.meaning in {*MEANINGS, "every"}, pattern.meaning
        values = {*pattern.slots, *pattern.constants}
        assert values >= set(NEEDED.get(pattern.meaning, "").split()), pattern.expression.pattern
        assert set(pattern.slots) <= set(pattern.expression.groupindex)
    assert len(patterns) > 60


@pytest.mark.parametrize("name", LANGUAGES)
@pytest.mark.parametrize("day", [date.min, date(2024, 2, 29), date.max])
def test_no_text_on_no_day_fails(name: str, day: date) -> None:
    """Texts of all languages, each read as this one."""
    for _, text, _ in _cases():
        for span in find_times(text, day, (), name):
            assert text[span.at :].startswith(span.words)
            assert all(first <= last for first, last in span.readings)
