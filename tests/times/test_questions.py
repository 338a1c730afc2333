"""What questions ask about time and amounts: their kind, the times that they speak of, orders and relations."""

from datetime import date

import pytest

from localmem.times.cues import alternatives
from localmem.times.questions import counted_nouns, read_question
from localmem.types import DateRange

DAY = date(2025, 6, 2)


@pytest.mark.parametrize(
    "question, kind",
    [
        ("What date was the inspector down for?", "when"),
        ("when exactly is that show", "when"),
        ("How long had the oven been in before it broke down?", "duration"),
        ("for how many weeks was I on the ward", "duration"),
        ("How many days ago did I buy the smoker?", "ago"),
        ("how long until the wedding", "ago"),
        ("How old is Emil?", "age"),
        ("what has bowls cost me this year all told", "total"),
        ("what did we save on the teeth", "difference"),
        ("Which did I set up first, the thermostat or the router?", "order"),
        ("Wann war der Termin beim Zahnarzt?", "when"),
        ("Wie lange war ich krank?", "duration"),
        ("Combien de temps ai-je attendu la réponse ?", "duration"),
    ],
)
def test_kinds(question: str, kind: str) -> None:
    assert read_question(question, DAY).kinds[:1] == (kind,)


@pytest.mark.parametrize(
    "question",
    [
        "what food makes the dog ill",
        "Where was I when the phone rang?",
        "how long should each go be",
        "Did I spend less?",
    ],
)
def test_other_questions_have_none(question: str) -> None:
    assert read_question(question, DAY).kinds == ()


def test_two_events_of_one_question_are_a_length_of_time() -> None:
    wish = read_question("How many days ago did I order the shelf when I moved in?", DAY)
    assert wish.kinds == ("duration",)


def test_ranges() -> None:
    march = DateRange(date(2025, 3, 1), date(2025, 3, 31))
    assert read_question("What did I grow in March 2025?", DAY).ranges == (march,)
    assert read_question("What did I grow?", DAY).ranges == ()


def test_a_month_ahead_may_be_last_years() -> None:
    ranges = read_question("What was planted in April?", date(2025, 3, 2)).ranges
    assert {day.first for day in ranges} >= {date(2024, 4, 1)}


def test_order_and_relation() -> None:
    assert read_question("What was my latest mark?", DAY).order == "last"
    assert read_question("Which flat did we originally want?", DAY).order == "first"
    relation = read_question("Who fed the cat before we moved to Leeds?", DAY).relation
    assert relation is not None
    assert (relation.before, relation.anchor) == (True, "we moved to leeds")


def test_the_two_events_of_a_duration() -> None:
    wish = read_question("How long from our concert till Anna is due?", DAY)
    assert wish.parts == ("our concert", "anna is due")


def test_what_is_counted() -> None:
    assert counted_nouns("How many soft rolls is it altogether?") >= {"soft", "roll"}
    assert counted_nouns("What did it cost?") == counted_nouns("How many dollars is it?") == frozenset()


def test_alternatives() -> None:
    assert alternatives("Which show did I watch first, 'The Crown' or 'Dark'?") == ("The Crown", "Dark")
    assert alternatives("Which came first?") is None
