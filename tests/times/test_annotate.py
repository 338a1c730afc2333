"""Times beside the words that name them: dates written behind them, and what has ended."""

from dataclasses import replace
from datetime import UTC, date, datetime, time

import pytest

from localmem.times.annotate import mark_sentence, over_since, show_times, spans_of, with_spans, without, write_dates
from localmem.types import DateRange, Precision, TimeRole, TimeSpan, Turn, Unit
from tests.growth import assert_linear

DAY = date(2025, 11, 10)
TODAY = date(2026, 2, 1)


def unit(text: str, *spans: TimeSpan, said: date = DAY) -> Unit:
    moment = datetime.combine(said, time(12), UTC)
    return Unit("s.0@u0", text, text, "statement", "User", "s", ("s.0",), moment, moment, spans)


def span(
    text: str,
    words: str,
    first: date,
    last: date | None = None,
    *,
    precision: Precision = "day",
    role: TimeRole = "at",
) -> TimeSpan:
    return TimeSpan(words, text.index(words), (DateRange(first, last or first),), precision, role)


def test_the_many_units_of_a_long_turn_are_read_in_linear_time() -> None:
    def read(count: int) -> None:
        units = with_spans([unit("x")] * count, [Turn("s.0", "user", "User", "x", moment)])
        assert [each.spans for each in units] == [()] * count

    moment = datetime.combine(DAY, time(12), UTC)
    assert_linear(read, 1_000)


@pytest.mark.parametrize(
    "first, last, language, written",
    [
        (date(2025, 11, 21), date(2025, 11, 21), "en", "21 November 2025"),
        (date(2025, 11, 15), date(2025, 11, 21), "en", "15 to 21 November 2025"),
        (date(2025, 11, 15), date(2025, 12, 3), "en", "15 November to 3 December 2025"),
        (date(2025, 12, 30), date(2026, 1, 2), "en", "30 December 2025 to 2 January 2026"),
        (date(2025, 11, 1), date(2025, 11, 30), "en", "November 2025"),
        (date(2025, 3, 1), date(2025, 5, 31), "en", "March to May 2025"),
        (date(2024, 12, 1), date(2025, 2, 28), "en", "December 2024 to February 2025"),
        (date(2025, 1, 1), date(2025, 12, 31), "en", "2025"),
        (date(1990, 1, 1), date(1999, 12, 31), "en", "1990 to 1999"),
        (date(2025, 11, 15), date(2025, 11, 21), "de", "15. bis 21. November 2025"),
        (date(2025, 3, 1), date(2025, 5, 31), "fr", "mars à mai 2025"),
        (date(2025, 11, 21), date(2025, 11, 21), "es", "21 de noviembre de 2025"),
        (date(2025, 11, 15), date(2025, 11, 21), "it", "15 – 21 novembre 2025"),
        (date(2025, 3, 1), date(2025, 5, 31), "pt", "março a maio de 2025"),
        (date(2025, 11, 15), date(2025, 12, 2), "nl", "15 november t/m 2 december 2025"),
        (date(2025, 11, 15), date(2025, 11, 21), "zh", "2025年11月15日至21日"),
        (date(2025, 11, 15), date(2025, 12, 3), "ja", "2025年11月15日〜12月3日"),
        (date(2025, 11, 5), date(2025, 11, 5), "ru", "5 ноября 2025"),
        (date(2025, 11, 5), date(2025, 11, 5), "sv", "2025-11-05"),
        (date(2025, 11, 1), date(2025, 11, 30), "sv", "2025-11"),
    ],
)
def test_dates_are_written_as_people_write_them(first: date, last: date, language: str, written: str) -> None:
    assert write_dates(DateRange(first, last), language) == written


@pytest.mark.parametrize(
    "words, first, precision, note",
    [
        ("a week on Friday", date(2025, 11, 21), "day", " (21 November 2025)"),
        ("today", date(2025, 11, 10), "day", " (10 November 2025)"),
        ("21 November", date(2025, 11, 21), "day", " (21 November 2025)"),
        ("9/11/25", date(2025, 11, 9), "day", " (9 November 2025)"),
        ("21 November 2025", date(2025, 11, 21), "day", ""),
        ("2025-03-04", date(2025, 3, 4), "day", ""),
        ("2025", date(2025, 1, 1), "year", ""),
    ],
)
def test_a_date_stands_behind_words_that_do_not_say_it(
    words: str, first: date, precision: Precision, note: str
) -> None:
    text = f"User: We meet {words}, that is the plan."
    last = date(first.year, 12, 31) if precision == "year" else first
    shown = show_times(unit(text, span(text, words, first, last, precision=precision)), TODAY)
    assert shown == f"User: We meet {words}{note}, that is the plan."


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("User: Vado con i bambini a Roma il 15 maggio", " (15 maggio 2026)"),
        ("User: De tandarts is volgende week vrijdag", " (21 november 2025)"),
        ("User: Se for preciso, venho em 5 de junho", " (5 de junho de 2026)"),
        ("User: Dentist 3 March", " (3 March 2026)"),
    ],
)
def test_a_date_is_in_the_language_of_the_text_though_a_word_of_it_is_english(text: str, note: str) -> None:
    assert show_times(replace(unit(text), spans=None), TODAY) == f"{text}{note}"


def test_only_sure_times_get_a_date_and_none_inside_code() -> None:
    text = "User: We meet 9/11/25, run `sleep until tomorrow` on Tuesdays, and leave tomorrow."
    readings = (DateRange(date(2025, 11, 9), date(2025, 11, 9)), DateRange(date(2025, 9, 11), date(2025, 9, 11)))
    in_code = span(text, "tomorrow", date(2025, 11, 11))
    weekly = replace(span(text, "on Tuesdays", date(2025, 11, 11)), repeats="FREQ=WEEKLY;BYDAY=TU")
    last = replace(in_code, at=text.rindex("tomorrow"))
    spans = (TimeSpan("9/11/25", text.index("9/"), readings, "day"), in_code, weekly, last)
    assert show_times(unit(text, *spans), TODAY) == text.replace("leave tomorrow", "leave tomorrow (11 November 2025)")


def test_a_time_with_its_date_in_brackets_gets_no_other() -> None:
    for text in ("The vet saw him yesterday (9 November 2025).", "I said: 'It is on Thursday (6 November 2025) at 3.'"):
        assert show_times(replace(unit(text), spans=None), TODAY) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("My cast comes off on the 12th (12 November 2025).", "on the 12th (12 November 2025, already past)."),
        ("My lease ends on Wednesday (12/11/2025).", "on Wednesday (12/11/2025, already past)."),
        ("I start on Monday (17 November).", "on Monday (17 November, 17 November 2025)."),
        (
            "We meet on Thursday (by 9 am) or on Friday.",
            "on Thursday (13 November 2025) (by 9 am) or on Friday (14 November 2025).",
        ),
        (
            "My lease ends on the 12th (see the letter of 20 November 2025 at home).",
            "on the 12th (12 November 2025, already past) (see the letter of 20 November 2025 [already past] at home).",
        ),
        (
            "We meet tomorrow (call Ann on Friday, she said).",
            "tomorrow (11 November 2025) (call Ann on Friday [14 November 2025], she said).",
        ),
    ],
)
def test_brackets_that_date_a_time_get_no_others_before_or_in_them(text: str, shown: str) -> None:
    own = replace(unit(text), spans=None)
    assert show_times(own, date(2026, 3, 1)).endswith(shown)


def test_a_mark_stands_before_the_stop_of_a_sentence_in_any_script() -> None:
    assert mark_sentence(unit("我住在柏林。我有一只狗。"), "我住在柏林。", "(said before)").text.startswith(
        "我住在柏林 (said before)。"
    )


def test_a_length_of_years_is_not_given_to_the_day() -> None:
    text = "User: I have lived here for six years."
    years = span(text, "for six years", date(2019, 11, 10), DAY, precision="year", role="for")
    assert show_times(unit(text, years), TODAY) == "User: I have lived here for six years (2019 to 2025)."


@pytest.mark.parametrize(
    "text, words, role, shown",
    [
        ("I am at my sister's till January.", "till January", "until", "till January (January 2026, already past)"),
        ("The cast comes off in January.", "January", "at", "January (January 2026, already past)"),
        ("In January my pass runs out.", "January", "at", "January (January 2026, already past)"),
        ("We fly in January.", "January", "at", "January (January 2026)"),
        ("It comes off. We fly in January.", "January", "at", "January (January 2026)"),
        ("My pass doesn't run out in January.", "January", "at", "January (January 2026)"),
        ("Der Vertrag läuft im Januar aus und das ist gut.", "Januar", "at", "Januar (Januar 2026, schon vorbei)"),
        ("Mon bail finit en janvier, je suis content.", "janvier", "at", "janvier (janvier 2026, déjà passé)"),
    ],
)
def test_what_ends_is_past_afterwards(text: str, words: str, role: TimeRole, shown: str) -> None:
    january = span(text, words, date(2026, 1, 1), date(2026, 1, 31), precision="month", role=role)
    ends = "past" in shown or "vorbei" in shown or "passé" in shown
    assert show_times(unit(text, january), TODAY) == text.replace(words, shown)
    assert over_since(unit(text, january), TODAY) == (date(2026, 1, 31) if ends else None)
    before = date(2026, 1, 31)
    assert "past" not in show_times(unit(text, january), before)
    assert over_since(unit(text, january), before) is None


def test_what_had_ended_when_it_was_said_is_no_end() -> None:
    text = "I lived in Rome until 2019."
    year = span(text, "until 2019", date(2019, 1, 1), date(2019, 12, 31), precision="year", role="until")
    assert over_since(unit(text, year), TODAY) is None


def test_a_memory_is_over_when_its_last_end_has_come() -> None:
    text = "The cast stays till December and the crutches till March."
    cast = span(text, "till December", date(2025, 12, 1), date(2025, 12, 31), precision="month", role="until")
    crutches = span(text, "till March", date(2026, 3, 1), date(2026, 3, 31), precision="month", role="until")
    assert over_since(unit(text, cast, crutches), TODAY) is None
    assert over_since(unit(text, cast, crutches), date(2026, 4, 1)) == date(2026, 3, 31)
    assert "till December (December 2025, already past) and the crutches till March (March 2026)." in show_times(
        unit(text, cast, crutches), TODAY
    )


def test_times_of_a_session_are_found_by_its_days_and_its_earlier_turns() -> None:
    moment = datetime.combine(DAY, time(23, 30), UTC)
    turns = (
        Turn("s.0", "user", "May", "The fair is in December.", moment),
        Turn("s.1", "assistant", "Bot", "How nice.", moment),
        Turn("s.2", "user", "May", "We go on the 9th. Tomorrow I pack.", moment),
    )
    said = replace(unit("May: We go on the 9th. Tomorrow I pack."), speaker="May", sources=("s.2",), spans=None)
    (resolved,) = with_spans([said], turns)
    assert [resolved.text[found.at :][: len(found.words)] for found in spans_of(resolved)] == ["the 9th", "Tomorrow"]
    assert show_times(resolved, TODAY) == (
        "May: We go on the 9th (9 December 2025). Tomorrow (11 November 2025) I pack."
    )


def test_a_unit_without_spans_gets_them_when_it_is_shown() -> None:
    old = replace(unit("User: I saw Ann yesterday."), spans=None)
    assert show_times(old, TODAY) == "User: I saw Ann yesterday (9 November 2025)."
    assert show_times(unit("User: I saw Ann yesterday."), TODAY) == "User: I saw Ann yesterday."  # looked for: none


def test_an_impossible_date_names_no_time() -> None:
    impossible = replace(unit("User: We meet on 31 February."), spans=None)
    assert show_times(impossible, TODAY) == impossible.text


def test_times_stay_with_their_words_when_a_sentence_is_cut() -> None:
    text = "User: Bins go out tomorrow. We meet on Friday. Then lunch tomorrow."
    friday = span(text, "Friday", date(2025, 11, 14))
    first = span(text, "tomorrow", date(2025, 11, 11))
    last = replace(first, at=text.rindex("tomorrow"))
    cut = without(unit(text, first, friday, last), "We meet on Friday.", "[…]")
    assert cut.text == "User: Bins go out tomorrow. […] Then lunch tomorrow."
    assert [cut.text[found.at :][: len(found.words)] for found in spans_of(cut)] == ["tomorrow", "tomorrow"]
