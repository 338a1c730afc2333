"""What a reply's sentences rest on: words shared with a memory, or a name and number that nobody said."""

from datetime import date

import pytest

from localmem.grounding.support import read_statements
from tests.growth import assert_linear

MEMORIES = (
    "User: My sister Clara lives in Lyon, in a flat over a bakery.",
    "User: I pay 780 euros of rent and 45 for the garage.",
    "User: My dog Bruno comes along to rehearsals.",
)
QUESTION = "Where does my sister live?"
DAYS = [date(2026, 3, 2)]


def _read(reply: str) -> list[tuple[int | None, str]]:
    return [(each.memory, each.unsupported) for each in read_statements(reply, MEMORIES, QUESTION, DAYS)]


@pytest.mark.parametrize(
    ("reply", "memory"),
    [
        ("Your sister Clara lives in Lyon.", 0),
        ("You pay 780 euros of rent.", 1),
        ("Bruno comes along to your rehearsals.", 2),
    ],
)
def test_a_statement_rests_on_the_memory_with_its_words(reply: str, memory: int) -> None:
    assert _read(reply) == [(memory, "")]


@pytest.mark.parametrize(
    ("reply", "name"),
    [("You told me that she moved to Marseille.", "Marseille"), ("You bought it for 950 in spring.", "950")],
)
def test_a_name_that_nobody_said_is_doubtful(reply: str, name: str) -> None:
    assert _read(reply) == [(None, name)]


@pytest.mark.parametrize(
    "reply",
    [
        "That sounds like a lovely place to be.",
        "Do you mean Marseille, or do you not?",
        "You have costs of 825 in all.",  # 780 and 45
        "The capital of France is Paris.",  # not about the listener
        "Well, hello.",
    ],
)
def test_other_sentences_are_left_alone(reply: str) -> None:
    assert _read(reply) == []


def test_without_a_memory_nothing_is_marked() -> None:
    assert read_statements("You told me that Minka is ill.", [], QUESTION, DAYS) == []


def test_a_number_is_looked_for_in_a_long_table_in_linear_time() -> None:
    def read(count: int) -> None:
        (statement,) = read_statements(
            "You paid exactly 77777777 for that house.", ["I like cats."], " ".join(table[:count]), []
        )
        assert statement.unsupported == "77777777"

    table = [str(n * 7919 % 1000003) for n in range(1, 2_005)]
    assert_linear(read, 500)
    assert read_statements("You paid exactly 777 for that house.", ["I like cats."], "I paid 700 and 77.", []) == []
    assert read_statements("You paid exactly 777 for that house.", ["I like cats."], "I paid 900 less 123.", []) == []
    assert read_statements("You paid exactly 777 for that house.", ["I like cats."], "I paid 7 times 111.", []) == []
    assert read_statements("You paid exactly 777 for that house.", ["I like cats."], "I paid 388.5 or 0.", []) != []
