"""Whether a question names somebody of whom the user has told."""

import pytest

from localmem.turns.acquaintances import names_acquaintance

STATEMENTS = (
    "Halima says her bus was late again.",
    "My cousin Kaveh is a cook, he lives near the port.",
    "We met Malo, who sells coconut buns.",
    "me and Osas painted the hall on Sunday",
    "So Houshang will come in November!",
    "a new guy for the back room, Tobias, does the night shift",
    "I share with a woman called Bev, and Lowri Beynon, she's doing catering.",
    "The man from Bergen sold me a girl's bike.",
    "I moved from Leeds to Stavanger, and Norway is cold.",
    "I drive a Fiat. Tesco's in York closes at ten.",
    "My dog, she barks. People say the weather turned.",
    "I bought the Arsenal ticket at Selfridges.",
)


@pytest.mark.parametrize(
    "question",
    [
        "How many children has Halima?",
        "what is halima's job",
        "road on which Kaveh lives",
        "What is the family name of Malo?",
        "What age is Osas",
        "What is the number of the flight of Houshang?",
        "how old is Bev",
        "what is Lowri's number",
    ],
)
def test_a_person_is_known_by_how_statements_speak_of_them(question: str) -> None:
    assert names_acquaintance(question, STATEMENTS)


@pytest.mark.parametrize(
    "question",
    [
        "What's the population of Leeds?",
        "what language do they speak in Stavanger",
        "How far is Bergen?",
        "How much does a Fiat cost?",
        "what time does Tesco close",
        "how many people live in York",
        "what breed is the best guard dog",
        "Who won the Arsenal match?",
        "How old is Beyonce?",
        "what is the weather like",
        "how much is it",
        "",
    ],
)
def test_places_things_and_strangers_are_not(question: str) -> None:
    assert not names_acquaintance(question, STATEMENTS)


def test_in_a_text_without_capitals_a_name_needs_none() -> None:
    assert names_acquaintance("how much did shruthi pay for the vaccine", ["and shruthi took the cat to the vet"])
    assert not names_acquaintance("what does shruthi mean", ["I asked what shruthi means"])


def test_a_word_behind_an_article_is_no_name() -> None:
    assert not names_acquaintance("what does a plumber cost", ["Plumber came at ten."])
