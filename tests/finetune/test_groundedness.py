"""Facts by words: what stands in a source, what is told of what should be, what is made up."""

import pytest

from finetune.groundedness import Facts, facts, facts_of, named, stands_in

SOURCE = "Ana: I bought a red kite in Porto for 12 euros. My brother Rui came along."


@pytest.mark.parametrize(
    ("fact", "stands"),
    [
        ("Ana bought a kite in Porto.", True),
        ("She bought a kite in Lisbon.", False),
        ("Ana bought a kite for 15 euros.", False),
        ("Elephants never forget anything.", False),
        ("Rui came along.", True),
    ],
)
def test_a_fact_stands_in_its_source_with_its_names_and_numbers(fact: str, stands: bool) -> None:
    assert stands_in(fact, SOURCE) is stands


def test_names_are_capitals_within_a_sentence() -> None:
    assert named("Yesterday Ana paid 12 euros and I paid none.") == {"ana", "12"}


def test_what_is_told_of_what_should_be_told() -> None:
    right = "Ana bought a red kite in Porto. Rui came along. Ana lives in Lisbon."  # the last is not in the source
    assert facts("Ana bought a red kite in Porto.", right, SOURCE) == Facts(1.0, 0.5)
    assert facts("Ana bought a red kite in Porto. Ana has 3 cats.", right, SOURCE) == Facts(0.5, 0.5)
    assert facts("", right, SOURCE) == Facts(1.0, 0.0)
    assert facts("Anything goes.", "Ana lives in Lisbon.", SOURCE).recall == 1.0


def test_facts_of_json_are_those_of_its_strings() -> None:
    assert facts_of('{"facts": ["Ana has a kite.", "It is red. It is new."], "n": 3}') == [
        "Ana has a kite.",
        "It is red.",
        "It is new.",
    ]
