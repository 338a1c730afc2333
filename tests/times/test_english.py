"""Times that English texts name: what is resolved, what keeps two readings, and what is no time."""

import random
import re
from datetime import date, timedelta
from pathlib import Path

import pytest
import yaml

from localmem.times.english import find_times
from localmem.times.english_words import load_grammar, load_lexicon
from localmem.times.resolver import find_times as resolve
from localmem.times.resolver import guess_language
from localmem.types import TimeSpan
from tests.growth import assert_linear

_CASES = [
    pytest.param(text, table["day"], expected, id=f"{table['about']}: {text}")
    for name in ("english.yaml", "english_voices.yaml")
    for table in yaml.safe_load(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for text, expected in table["texts"].items()
]
_DAY = date(2025, 5, 14)


def _write(span: TimeSpan) -> str:
    days = " or ".join(str(first) if first == last else f"{first}..{last}" for first, last in span.readings)
    role = "" if span.role == "at" else span.role
    return " ".join(part for part in (f"{span.words} = {days}", span.precision, role, span.repeats) if part)


@pytest.mark.parametrize("text, day, expected", _CASES)
def test_times_are_resolved_by_the_day_they_are_said_on(text: str, day: date, expected: list[str]) -> None:
    spans = find_times(text, day)
    assert [_write(span) for span in spans] == expected
    assert all(text[span.at : span.at + len(span.words)] == span.words for span in spans)


@pytest.mark.parametrize(
    "text",
    [
        "My gym is Monday, Wednesday and Friday at 6.",
        "I work Monday, Tuesday and Thursday.",
        "Choir practice is Tuesday and Thursday at the church.",
        "She does yoga on Monday and Wednesday.",
        "gym is mon, wed and fri",
        "The kids have swimming Monday and Thursday.",
        "My daughter works Monday and Tuesday at the library.",
        "he plays five a side tuesday and thursday",
        "They train on Tuesday and on Friday.",
        "Bin days are Tuesday and Friday.",
        "My exam club is Monday and Wednesday.",
        "She teaches workshops Monday and Thursday.",
        "The surgery is open Monday and Thursday.",
    ],
)
def test_several_weekdays_of_a_habit_are_of_no_one_week(text: str) -> None:
    assert find_times(text, _DAY) == []


@pytest.mark.parametrize(
    "text",
    [
        "The union vote is Thursday and Friday.",
        "I'm working Monday and Thursday, and then never again.",
        "My shifts are Monday and this Thursday.",
        "We fly out Monday and Friday we come back.",
        "I start Monday and Friday is payday.",
        "The surveyor is coming Monday and Thursday.",
        "I went swimming on Monday and Friday.",
        "I'll be in Leeds Monday and Wednesday.",
        "We're having friends over Friday and Sunday.",
        "I have interviews Monday and Thursday.",
        "The flights to Rome are on Monday and Friday.",
        "My appointments with the dentist are both on Tuesday and Friday.",
        "The workshop is Monday and Wednesday.",
    ],
)
def test_several_weekdays_of_one_week_are_dated(text: str) -> None:
    assert len(find_times(text, _DAY)) == 2


def test_three_weekdays_of_exams_are_dated() -> None:
    spans = find_times("My exams are Monday, Wednesday and Friday.", _DAY)
    assert [span.words for span in spans] == ["Monday", "Wednesday", "Friday"]


def test_a_run_of_dates_is_read_in_linear_time() -> None:
    assert len(find_times("12 May " * 50, _DAY)) == 50
    assert_linear(lambda count: find_times("12 May " * count, _DAY), 50)


@pytest.mark.parametrize(
    "earlier, text, expected",
    [
        (["Is it in August?", "Yes."], "on the 9th", ["2025-08-09"]),
        ([], "in August, the 9th", ["2025-08-09"]),
        (["We flew in August 2024."], "They'll be there until the 9th", ["2025-06-09"]),
        (
            ["The exam is in July."],
            "A long time, I know. They'll send the letter on the 9th.",
            ["2025-06-09", "2025-07-09"],
        ),
        (["The exam is in August."], "A long time, I know. They'll send the letter on the 9th.", ["2025-06-09"]),
        (["The exam is in August."], "No, on the 9th. That's the only day they could offer us.", ["2025-08-09"]),
        (["We met in March 2025."], "I will call on the 9th", ["2025-06-09"]),
    ],
)
def test_a_bare_day_is_of_the_month_that_was_named(earlier: list[str], text: str, expected: list[str]) -> None:
    context: list[TimeSpan] = []
    for turn in earlier:
        context += find_times(turn, _DAY, context)
    assert [str(reading.first) for reading in find_times(text, _DAY, context)[-1].readings] == expected


def test_the_order_of_day_and_month_settles_a_date_in_digits() -> None:
    text = "9/11/25"
    assert [_write(span) for span in find_times(text, _DAY, day_first=True)] == ["9/11/25 = 2025-11-09 day"]
    assert [_write(span) for span in find_times(text, _DAY, day_first=False)] == ["9/11/25 = 2025-09-11 day"]
    assert len(find_times("25/12/25", _DAY, day_first=False)) == 0


def test_no_words_of_the_grammar_break_it_in_any_order() -> None:
    grammar = load_grammar()
    literals = {word for pattern, _ in grammar["rules"] for word in re.findall(r"[a-z]+", pattern)}
    numbers = [
        "9",
        "31",
        "22nd",
        "1974",
        "80s",
        "9/11",
        "9/11/25",
        "2024-13-45",
        "6-10",
        ",",
        ".",
        "-",
        "/",
        "was",
        "is",
    ]
    vocabulary = sorted({*load_lexicon(), *literals, *numbers})
    chooser = random.Random(0)
    resolved = 0
    for _ in range(500):
        text = " ".join(chooser.choices(vocabulary, k=20))
        end = 0
        for span in find_times(text, date(1900, 1, 1) + timedelta(chooser.randrange(60_000))):
            assert text[span.at : span.at + len(span.words)] == span.words
            assert span.at >= end
            assert span.readings == tuple(sorted(set(span.readings)))
            assert all(first <= last for first, last in span.readings)
            end = span.at + len(span.words)
            resolved += 1
    assert resolved > 500


def test_a_broken_clock_resolves_nothing() -> None:
    assert find_times("see you tomorrow", date.max) == find_times("yesterday", date.min) == []


def test_capitals_that_grow_in_small_letters_keep_the_positions() -> None:
    (span,) = find_times("İİİ came yesterday", _DAY)
    assert (span.words, span.at) == ("yesterday", 9)


@pytest.mark.parametrize(
    "text, language",
    [
        ("I'll come on Friday", "en"),
        ("Friday?", "en"),
        ("We land December 19th", "en"),
        ("1234", ""),
        ("Ich komme am Freitag und bleibe", "de"),
        ("来週の木曜", "ja"),
    ],
)
def test_the_language_is_told_by_script_and_common_words(text: str, language: str) -> None:
    assert guess_language(text) == language


def test_where_several_languages_fit_those_with_rules_for_a_text_tell_its_times() -> None:
    assert [span.words for span in resolve("Me caso dentro de dos semanas.", _DAY)] == ["dentro de dos semanas"]
    assert [span.words for span in resolve("Vamos a Roma dentro de dos meses.", _DAY)] == ["dentro de dos meses"]
    assert not resolve("Blue, a 2013 Civic.", _DAY)  # as English no less likely than as Spanish


@pytest.mark.parametrize(
    "text",
    [
        "We land December 19th",
        "Jack starts on December 3rd.",
        "We leave Sept 30th!",
        "Accountant meeting: Mon 13 April 2pm, bring receipts",
        "Meeting Mon 13 April",
    ],
)
def test_an_english_day_makes_a_text_english(text: str) -> None:
    (span,) = resolve(text, _DAY)
    assert span.precision == "day"


def test_a_language_that_is_given_is_not_guessed() -> None:
    assert resolve("Friday", _DAY, language="en")
    assert not resolve("Friday", _DAY, language="de")
