"""Statements by words: honest abstentions and general knowledge stay, falsehoods made of the source's words do not."""

import pytest

from finetune.traces.support import find_unsupported, is_claim

SOURCE = """\
User: My brother Rui moved to Porto.
Assistant: How nice.
User: I live in Lisbon and I don't eat fish. I bought a red kite for 12 euros.
Assistant: Where did you fly it?
User: On the beach at Cascais."""


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where do I live?", "You live in Lisbon."),
        ("Where do I live?", "I haven't been told that yet."),
        ("Do I eat fish?", "No, you don't eat fish."),
        ("What did I buy?", "You bought a kite for 12 euros."),
        ("Where's my brother?", "Your brother Rui moved to Porto."),
        ("Where did I fly my kite?", "You flew it on the beach at Cascais."),
        ("What's the capital of France?", "The capital of France is Paris."),
        ("How does a kite fly?", "The wind pushes under its sail and lifts it."),
        ("What could I cook?", "You could try a risotto with mushrooms."),
        ("I got a dog today!", "That's lovely! What's its name?"),
    ],
)
def test_what_is_honest_stays(question: str, answer: str) -> None:
    assert find_unsupported(answer, SOURCE, question=question) is None


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where do I live?", "You live in Porto."),
        ("Where did I move?", "You moved to Porto."),
        ("Do I eat fish?", "You eat fish."),
        ("What did I buy?", "You bought a red kite for 15 euros."),
        ("Where do I live?", "You live in Madrid."),
        ("Where do I live?", "You told me that you live in Porto with Rui."),
    ],
)
def test_what_the_source_contradicts_or_lacks_is_named(question: str, answer: str) -> None:
    assert find_unsupported(answer, SOURCE, question=question) == answer


def test_every_statement_of_a_summary_needs_a_source() -> None:
    assert find_unsupported("User lives in Lisbon. The kite cost 12 euros.", SOURCE) is None
    assert find_unsupported("User lives in Lisbon. User is proud of cycling in the rain.", SOURCE) is not None


def test_what_a_reply_states() -> None:
    assert is_claim("It was on the beach.", "Where did I fly it?")
    assert is_claim("You have a kite.", "Hello.")
    assert not is_claim("Kites fly.", "How do kites fly?")
    assert not is_claim("I hope you enjoy your kite.", "I have a kite.")
