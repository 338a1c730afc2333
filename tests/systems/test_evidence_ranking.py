"""What the default memory ranks by: words shared with what was found first, and whether a request needs memory."""

import pytest

from localmem.systems.evidence.ranking import PLACE, RERANKER, SHARED, describe, probability, shared_words
from localmem.systems.evidence.relevance import probability_of_need

GIFT = "Desmond gave me two dozen leeks."
TRADE = "Desmond tuned pianos all his life."
OTHERS = [f"We talk about me and the weather number{n}." for n in range(5)]


def test_a_name_shared_with_what_was_found_first_counts_by_its_place() -> None:
    assert shared_words([GIFT, *OTHERS, TRADE]) == [0, 0, 0, 0, 0, 0, 1]
    assert shared_words([OTHERS[0], GIFT, *OTHERS[1:], TRADE])[-1] == 1 / 2
    assert shared_words([*OTHERS[:3], GIFT, *OTHERS[3:], TRADE])[-1] == 0  # not among the first three


def test_common_words_are_no_names() -> None:
    assert shared_words(OTHERS) == [0] * 5


def test_endings_do_not_hide_a_name() -> None:
    assert shared_words(["The cushion.", *OTHERS, "Both cushions."])[-1] == 1


def test_a_second_hop_lifts_what_neither_search_nor_reranker_prefers() -> None:
    texts = [GIFT, *OTHERS, TRADE]
    likely = [probability(features) for features in describe(texts, [0.6, *[0.2] * 5, 0.2])]
    assert likely[0] == max(likely)
    assert likely[-1] > likely[-2]


def test_without_a_reranker_the_place_decides() -> None:
    features = describe(OTHERS, None)
    assert [row[RERANKER] for row in features] == [0] * 5
    assert [row[SHARED] for row in features] == [0] * 5
    assert [row[PLACE] for row in features] == sorted((row[PLACE] for row in features), reverse=True)
    likely = [probability(row) for row in features]
    assert likely == sorted(likely, reverse=True)


def test_certain_scores_are_finite() -> None:
    assert [0 < probability(row) < 1 for row in describe([GIFT, TRADE], [0.0, 1.0])] == [True, True]


@pytest.mark.parametrize(
    "request_text",
    ["What is 12 times 7?", "Write a haiku about rain.", "How do you splice a rope"],
)
def test_a_general_request_needs_no_memory(request_text: str) -> None:
    assert probability_of_need(request_text) < 0.26


@pytest.mark.parametrize(
    "question",
    [
        "Where does Anna live?",
        "What is my bicycle's colour?",
        "Wo wohnt meine Schwester?",
        "我的自行车是什么颜色？",
        "",
    ],
)
def test_a_question_needs_memory(question: str) -> None:
    assert probability_of_need(question) > 0.26
