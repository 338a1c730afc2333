"""Distinctive words: what two texts seldom share by chance."""

import pytest

from localmem.turns.distinctive_words import find_distinctive_words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("My PIN is 4711.", {"pin", "4711"}),
        ("You said: I was there, too.", set()),
        ("Zo\u00eb's cat", {"zoe", "cat"}),
        ("\u6211\u4f4f\u5728\u67cf\u6797", {"\u6211\u4f4f", "\u4f4f\u5728", "\u5728\u67cf", "\u67cf\u6797"}),
        ("", set()),
    ],
)
def test_distinctive_words(text: str, expected: set[str]) -> None:
    assert find_distinctive_words(text) == expected
