"""Distinctive words: what two texts seldom share by chance."""

import pytest

from localmem.turns.distinctive_words import find_distinctive_words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My PIN is 4711.", {"pin", "4711"}),
        ("My son Ben has a dog.", {"son", "ben", "dog"}),
        ("My son Dan is a man of war.", {"son", "dan", "man", "war"}),
        ("Mia has a will.", {"mia"}),
        ("Das ist für meinen Arzt über Krebs, sie können das.", {"arzt", "krebs"}),
        ("You said: I was there, too.", {"you", "said", "i", "was", "there", "too"}),
        ("Zo\u00eb's cat", {"zoe", "cat"}),
        ("\u6211\u4f4f\u5728\u67cf\u6797", {"\u6211\u4f4f", "\u4f4f\u5728", "\u5728\u67cf", "\u67cf\u6797"}),
        ("", set()),
    ],
)
def test_distinctive_words(text: str, expected: set[str]) -> None:
    assert find_distinctive_words(text) == expected


def test_a_reply_shares_no_frequent_word_with_a_text_of_frequent_words() -> None:
    private = find_distinctive_words("Das ist nur für mich.")
    assert private.isdisjoint(find_distinctive_words("Für heute empfehle ich Pasta."))
    assert not private.isdisjoint(find_distinctive_words("Nur für mich."))
