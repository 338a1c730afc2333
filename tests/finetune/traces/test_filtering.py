"""Facts by words: what a source supports, what an answer states of what is expected, what it invents."""

import pytest

from finetune.traces.filtering import FactScores, facts_of, is_supported, names_and_numbers, score_facts

SOURCE = "Ana: I bought a red kite in Porto for 12 euros. My brother Rui came along."


@pytest.mark.parametrize(
    ("fact", "supported"),
    [
        ("Ana bought a kite in Porto.", True),
        ("She bought a kite in Lisbon.", False),
        ("Ana bought a kite for 15 euros.", False),
        ("Elephants never forget anything.", False),
        ("Rui came along.", True),
    ],
)
def test_a_fact_needs_its_names_numbers_and_words_in_the_source(fact: str, supported: bool) -> None:
    assert is_supported(fact, SOURCE) is supported


def test_names_are_capitals_within_a_sentence() -> None:
    assert names_and_numbers("Yesterday Ana paid 12 euros and I paid none.") == {"ana", "12"}


def test_precision_and_recall_of_facts() -> None:
    right = "Ana bought a red kite in Porto. Rui came along. Ana lives in Lisbon."  # the last is not in the source
    assert score_facts("Ana bought a red kite in Porto.", right, SOURCE) == FactScores(1.0, 0.5)
    assert score_facts("Ana bought a red kite in Porto. Ana has 3 cats.", right, SOURCE) == FactScores(0.5, 0.5)
    assert score_facts("", right, SOURCE) == FactScores(1.0, 0.0)
    assert score_facts("Anything goes.", "Ana lives in Lisbon.", SOURCE).recall == 1.0


def test_facts_of_json_are_those_of_its_strings() -> None:
    assert facts_of('{"facts": ["Ana has a kite.", "It is red. It is new."], "n": 3}') == [
        "Ana has a kite.",
        "It is red.",
        "It is new.",
    ]
