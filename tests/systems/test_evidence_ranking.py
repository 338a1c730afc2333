"""What the default memory ranks by: words shared with what was found first, and whether a request needs memory."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from localmem import factory
from localmem.retrieval.base import QueryReader
from localmem.systems.evidence.ranking import PLACE, RERANKER, SHARED, describe, probability, shared_words
from localmem.systems.evidence.relevance import Model, probability_of_need

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


@pytest.mark.parametrize(
    ("request_text", "needs_memory"),
    [
        ("a rhyme about frogs for the school bus", False),
        ("what is the boiling point of tin", False),
        ("name two songs about rivers", False),
        ("which train does Oskar take home on Fridays", True),
        ("the florist, was that before or after the move", True),
        ("and the name of the place with the dumplings", True),
    ],
)
def test_with_its_vector_a_request_is_told_from_a_question(
    request_text: str, needs_memory: bool, starter_encoder_dir: Path
) -> None:
    reader = factory.reranker("minilm-l6-v2-rerank", "cpu")
    assert isinstance(reader, QueryReader)
    assert (probability_of_need(request_text, reader) > 0.26) == needs_memory


class ForeignReader:
    """Reads requests by other weights than those that the model learned from."""

    query_identity = "other"

    def read_query(self, query: str) -> NDArray[np.float32]:
        raise AssertionError(query)


def test_a_reader_of_other_weights_is_not_asked() -> None:
    question = "Where does Anna live?"
    assert probability_of_need(question, ForeignReader()) == probability_of_need(question)


def test_a_vector_of_another_width_is_an_error() -> None:
    model = Model(bias=0.0, vector=(500, -500))
    assert model.probability({}, (1.0, 0.5)) == pytest.approx(1 / (1 + np.exp(-1.5)))
    with pytest.raises(ValueError, match="longer"):
        model.probability({}, (1.0, 0.5, 0.0))
