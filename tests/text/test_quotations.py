"""By which words a reply is known to repeat a unit."""

import pytest

from localmem.text.quotations import quotations
from localmem.times.annotate import with_spans
from tests.fakes import session, unit


@pytest.mark.parametrize("label", ["User: ", "User (part 2 of 3): "])
def test_a_quotation_is_a_sentence_without_who_said_it_and_a_short_one_with_a_mark(label: str) -> None:
    statement = unit("u1", f'{label}My sister "Clara" lives in Lyon. I am very old.')
    assert quotations(statement) == ["My sister 'Clara' lives in Lyon.", '"I am very old.']


def test_a_time_is_quoted_as_a_recall_shows_it_too() -> None:
    statement = unit("u1", "User: The vet saw my cat yesterday.")
    (dated,) = with_spans([statement], session("x").turns, None)
    assert quotations(dated) == ["The vet saw my cat yesterday.", "The vet saw my cat yesterday (1 March 2026)."]


def test_clauses_are_quoted_with_a_mark_where_others_are_left_out() -> None:
    statement = unit("u1", "User: My desk is 3B, no sorry 4B, and that one stands near the pantry, alas.")
    assert quotations(statement)[1:] == [
        '"My desk is 3B …',
        '"My desk is 3B, no sorry 4B',
        '"… no sorry 4B …',
        '"… no sorry 4B, and that one stands near the pantry',
        '"… and that one stands near the pantry',
        '"… alas.',
    ]
