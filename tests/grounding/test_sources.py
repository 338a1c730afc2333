"""What a statement names that its sources do not, in several languages, and what honest statements may add."""

from datetime import date

import pytest

from localmem.grounding.sources import Sources
from localmem.text.parse import fold, words

TALK = """User: We moved last month, to Lyon. My sister Zoë and twenty-five friends helped; it took from half past seven
until nine. The flat cost 1,250 a month, I am 34, and Zoë was born in nineteen eighty-four.
Assistant: Did you take the train from Italy?"""
SOURCES = Sources(TALK, [date(2026, 6, 20)], frozenset(["porto", "rui"]))


@pytest.mark.parametrize(
    "statement",
    [
        "User moved to Lyon with Zoe's help.",
        "Zoë, User's sister, and 25 friends helped.",
        "Moving took until 21:00; it began at 7:30.",
        "The flat costs 1250 a month, which is €1,250.",
        "User is 34 years old and was born in 1992.",
        "Zoë was born in 1984.",
        "User moved in May 2026, before 12 June 2026.",
        "User took an Italian train on a Monday.",
        "User has 2 homes.",
        "“Moving was hard,” says User.",
    ],
)
def test_honest_statements_pass(statement: str) -> None:
    assert SOURCES.missing(statement) is None


@pytest.mark.parametrize(
    ("statement", "claim"),
    [
        ("User moved to Marseille.", ("name", "Marseille")),
        ("Rui helped.", ("name", "Rui")),
        ("Der Nutzer ist nach Porto gezogen und hat dort eine Wohnung.", ("name", "Porto")),
        ("用户搬到了Porto。", ("name", "Porto")),
        ("Forty friends came, User paid 2,500.", ("number", "2,500")),
        ("User moved in 1971.", ("date", "1971")),
        ("User moved in November.", ("date", "User moved in November.")),
        ("The party is on 3 December 2026.", ("date", "The party is on 3 December 2026.")),
    ],
)
def test_what_no_source_holds_is_named(statement: str, claim: tuple[str, str]) -> None:
    assert SOURCES.missing(statement) == claim


def test_german_nouns_are_no_names() -> None:
    talk = "User: Ich habe jetzt im Krankenhaus angefangen und wir sind auf der Station drei, die Arbeit ist gut."
    sources = Sources(talk, [date(2026, 6, 20)])
    assert sources.missing("User arbeitet seit Kurzem als Pflegekraft in einer Klinik und mag ihre Tätigkeit.") is None


def test_chinese_numerals_are_numbers() -> None:
    sources = Sources("用户：我三百二十块买了两只鸡，五月四号送到。", [date(2026, 5, 1)])
    assert sources.missing("用户花320元买了2只鸡，5月4日送到。") is None
    assert sources.missing("用户花480元买了鸡。") == ("number", "480")


def test_numbers_in_german_and_french_words() -> None:
    assert Sources("Ich bin fünfundvierzig, er ist zweiundzwanzig.").missing("Sie ist 45, er 22.") is None
    assert Sources("J'ai quatre-vingt-dix ans, lui vingt et un.").missing("Elle a 90 ans, lui 21.") is None
    assert Sources("J'ai quatre-vingt-dix ans.").missing("Elle a 73 ans.") == ("number", "73")


def test_a_date_of_no_known_day_needs_a_source() -> None:
    assert Sources("We met on 5 May.").missing("They met on 5 May.") is None
    assert Sources("We met.").missing("They met on 25 May.") == ("number", "25")


def test_words_are_folded() -> None:
    assert words("Zoë's café, 3rd 猫") == ["zoe", "cafe", "3rd", "猫"]
    assert fold("Łukasz’s") == "łukasz"


@pytest.mark.parametrize(
    ("source", "statement"),
    [
        ("I paid $1,234.50.", "User paid 1234.5."),
        ("Ich zahle 1.234.567,80 Euro.", "User pays €1,234,567.80."),
        ("My loan is 1234567.", "The loan is 1,234,567."),
        ("It weighs 1234567.25 g.", "It weighs 1234567.25 g."),
        ("Version 1.2.3, on page 007", "Version 1.2.3, page 7"),
    ],
)
def test_an_amount_may_be_written_in_any_form(source: str, statement: str) -> None:
    assert Sources(source).missing(statement) is None


@pytest.mark.parametrize("amount", ["1,234.51", "1234566", "1.234.567,90", "1234567.26"])
def test_another_amount_is_named(amount: str) -> None:
    sources = Sources("I paid $1,234.50 and 1234568, then 1234567.25.")
    assert sources.missing(f"User paid {amount}.") == ("number", amount)


@pytest.mark.parametrize(
    ("said_on", "statement"),
    [
        (date(2026, 3, 1), "Ana left in February."),
        (date(2026, 1, 30), "Ana goes there in February."),
        (date(2024, 3, 2), "Ana fell on 29 February."),
        (date(9999, 12, 31), "Ana left in November."),
    ],
)
def test_a_month_next_to_the_day_may_be_meant(said_on: date, statement: str) -> None:
    assert Sources("Ana: yesterday, next week", [said_on]).missing(statement) is None
    assert Sources("Ana: yesterday, next week", [said_on]).missing("Ana left in August.") is not None


def test_a_numeral_without_end_is_no_number() -> None:
    assert Sources("一" + "万" * 2000).missing("Ana has 55 cats.") == ("number", "55")
