"""Amounts in digits and words: what is read, what is left out, and how values of different units are put together."""

from fractions import Fraction

import pytest

from localmem.times.amounts import convert, dimension, find_ages, find_amounts, write_amount


@pytest.mark.parametrize(
    "text, amounts",
    [
        ("I paid my subs for the year, 65 pounds", ["£65"]),
        ("a quote of £1,250.50, or 12,50 € a month", ["£1,250.50", "€12.50"]),
        ("need 14k all in, have 4200", ["14,000", "4,200"]),
        ("eight thousand two hundred, and six and a half grand", ["8,200", "6,500"]),
        ("a hundred and twenty people, two dozen leeks", ["120", "24"]),
        ("240 hours signed, then a 5-day trip", ["240 hours", "5 days"]),
        ("two and a half weeks", ["2.5 weeks"]),
        ("$1.3k", ["$1,300"]),
        ("thirty-five an hour, then 17.50 an hr", ["35", "17.5"]),
        ("9 and a half thousand, hundred and four thousand five hundred", ["9,500", "104,500"]),
        ("1.1 lakh, or Rs 1,10,000 for all", ["110,000", "110,000"]),
        ("they pay 48/h and 61/hour, spelled with two k's", ["48", "61", "2"]),
        ("two hundred francs, then 2,300 soles", ["200 CHF", "2,300 soles"]),
    ],
)
def test_amounts_are_read(text: str, amounts: list[str]) -> None:
    assert [write_amount(amount.value, amount.unit) for amount in find_amounts(text)] == amounts


@pytest.mark.parametrize(
    "text",
    [
        "room 214, the 1225, bus no 16",
        "at 12:50-1:35, or 6am, or 8 o'clock",
        "back in 1974, on the 17th",
        "the girl is 22 years old",
        "about 40 pounds, nearly 300",
        "he's fourteen and deaf, shes 61, and I turn 48",
        "two thirty five a mile, four seventy five, 24 five",
        "the van is 2m60 high",
        "one of us two",
        "25% of it, or 25 percent",
    ],
)
def test_names_clocks_years_ages_and_estimates_are_no_amounts(text: str) -> None:
    assert find_amounts(text) == []


def test_a_place_is_that_of_the_first_character() -> None:
    text = "it costs 40 now, and £1,250 then, or twelve loaves"
    assert [text[amount.at :][: len(amount.words)] for amount in find_amounts(text)] == ["40", "£1,250", "twelve"]


@pytest.mark.parametrize("text", ["he's thirty and sings", "Danylo who is 30", "I'm 30."])
def test_ages(text: str) -> None:
    assert [(age.value, age.words in text) for age in find_ages(text)] == [(Fraction(30), True)]
    assert find_ages("he's one of 30 men, she is good, makes 30, and the fee is 30") == []


def test_a_count_has_the_nouns_behind_it() -> None:
    (rolls,) = find_amounts("they want 120 soft rolls for the dinner")
    assert (rolls.value, rolls.unit, rolls.nouns) == (Fraction(120), "", ("soft", "rolls"))


def test_units_of_a_dimension_are_converted() -> None:
    metres, kilometres = find_amounts("500 m, then 2 km")
    assert convert(metres, "km") + convert(kilometres, "km") == Fraction(5, 2)
    assert dimension("km") == dimension("miles") == "length"
    assert dimension("£") == "£"
    assert dimension("") == ""
