"""Which turns ask for what the user said, and that no reply to them is remembered."""

from math import inf
from pathlib import Path

from localmem import factory
from localmem.systems.evidence.asking import log_odds_of_asking, surely_asks
from localmem.systems.evidence.units import is_new, places
from tests.fakes import session

QUESTION = "What is my dog called?"


def test_asking_is_told_by_words() -> None:
    turns = [QUESTION, "what did i tell you about my knee", "How do I boil an egg?", "I have a dog."]
    odds = [*map(log_odds_of_asking, turns)]
    assert min(odds[:2]) > 1 > -1 > max(odds[2:])


def test_the_shipped_scorer_tells_asking_without_a_question_word(starter_encoder_dir: Path) -> None:
    scorer = factory.reranker("minilm-l6-v2-reader", "auto")
    asking = ["my present wage", "name of the dog we took in", "form wants the plate number of my van"]
    plain = [QUESTION, "What is my cat called?", "Where do I live?", "Do I have siblings?"]
    ordinary = ["What is 12 times 7?", "How do I boil an egg?", "Write a limerick about a drummer.", "I have a dog."]
    assert min(log_odds_of_asking(turn, scorer) for turn in (*asking, *plain)) > 1
    assert max(log_odds_of_asking(turn, scorer) for turn in ordinary) < -1
    assert min(log_odds_of_asking(turn, scorer) for turn in plain) > 0  # answered without any memory too
    assert log_odds_of_asking(asking[0]) == log_odds_of_asking("Wie heißt mein Hund?", scorer) == -inf


def test_what_is_said_or_ordered_without_a_question_does_not_ask(starter_encoder_dir: Path) -> None:
    scorer = factory.reranker("minilm-l6-v2-reader", "auto")
    statements = ["I work the night shift.", "just got back from the gym", "marcus moved to Boise for work"]
    changes = ["I quit the gym", "scrap that, its friday now, same time", "Book club is six people this time."]
    commands = ["continue", "another one please", "Plan a menu for Marcus's visit"]
    shown = ["Fix the grammar: me and him was going store", "Translate to Welsh: where does my brother live?"]
    for turn in (*statements, *changes, *commands, *shown):
        assert log_odds_of_asking(turn, scorer) == -inf, turn


def test_a_reply_to_a_question_about_the_user_is_no_memory(starter_encoder_dir: Path) -> None:
    scorer = factory.reranker("minilm-l6-v2-rerank", "auto")
    advice = ("Suggest a name for my dog.", "What would be a good name for my dog?")
    replies = [places(session(turn, "Your dog is a Greyhound called Rex."))[1] for turn in (QUESTION, *advice)]
    assert [is_new(reply, (), scorer) for reply in replies] == [False, True, True]
    assert is_new(replies[0], ())
    assert not surely_asks(QUESTION, None)


def test_a_reply_to_what_one_person_asks_another_is_a_memory(starter_encoder_dir: Path) -> None:
    scorer = factory.reranker("minilm-l6-v2-rerank", "auto")
    for turn in ("When did you move there?", "What did you do at the weekend?"):
        reply = places(session(turn, "Three years ago, and on Sunday we had a scavenger hunt with my sister."))[1]
        assert log_odds_of_asking(turn, scorer) > 1
        assert is_new(reply, (), scorer)
