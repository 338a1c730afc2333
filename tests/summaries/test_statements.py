"""The selector of statements: what it keeps, what it leaves out, and how it quotes."""

from pathlib import Path

import numpy as np
import pytest

from localmem.errors import BadInput
from localmem.summaries.statements import (
    CUES,
    Line,
    Statement,
    StatementModel,
    StatementSelector,
    bare_statement,
    read_transcript,
    split_statements,
)
from tests.fakes import WordEncoder

OWN = 2  # the cue that counts words such as "my"


def model(threshold: float = 0.5) -> StatementModel:
    """Keeps sentences in the first person."""
    cues = np.zeros(CUES)
    cues[OWN] = 1
    vector = (0.0,) * WordEncoder.dimension
    return StatementModel(base="words", vector=vector, cues=tuple(cues.tolist()), bias=0.0, threshold=threshold)


def quotes(*lines: tuple[str, str], limit: int | None = None, threshold: float = 0.5) -> list[str]:
    selector = StatementSelector(WordEncoder(), model(threshold))
    return [statement.quote() for statement in selector.select([Line(*line) for line in lines], "Ana", limit)]


def test_what_a_speaker_says_of_herself_is_quoted_word_for_word_and_others_are_not() -> None:
    assert quotes(("Ana", "Nice weather. My son is Rui."), ("Tom", "I have a dog."), ("Ana", "ok")) == [
        'Ana said: "My son is Rui."'
    ]


def test_questions_and_requests_are_no_statements() -> None:
    assert quotes(("Ana", "What is my name? Now write me my letter. Ok, give us my list.")) == []


def test_a_sentence_that_points_back_stands_with_the_one_before_it() -> None:
    assert quotes(("Ana", "The dog is ill. She ate my shoe. My car is red.")) == [
        'Ana said: "The dog is ill. She ate my shoe."',
        'Ana said: "My car is red."',
    ]


def test_a_short_answer_stands_with_its_question() -> None:
    assert quotes(("Tom", "Nice. Who plays?"), ("Ana", "My brother.")) == [
        'Asked "Who plays?", Ana said: "My brother."'
    ]


def test_a_quotation_is_taken_apart_again() -> None:
    quoted = [Statement("Ana", 'I "like" it.', question, 1.0).quote() for question in ("", "And?")]
    assert [bare_statement(text) for text in (*quoted, "Ana left.")] == ['I "like" it.', 'I "like" it.', "Ana left."]


def test_the_best_statements_are_kept_in_their_order() -> None:
    turn = ("Ana", "My cat is old. I gave my dog my bed. I sold my car.")
    assert quotes(turn, limit=2) == ['Ana said: "I gave my dog my bed."', 'Ana said: "I sold my car."']


def test_nothing_is_selected_of_nothing() -> None:
    assert quotes() == []
    assert quotes(("Tom", "I have a dog.")) == []


def test_a_transcript_is_read_back_with_its_line_breaks() -> None:
    text = "Ana: one\ntwo: three\nTom: four"
    assert read_transcript(text, ("Ana", "Tom")) == [Line("Ana", "one\ntwo: three"), Line("Tom", "four")]
    assert [line.speaker for line in read_transcript(text)] == ["Ana", "two", "Tom"]
    assert read_transcript("no speaker at all") == []


def test_weights_are_saved_and_loaded_and_must_fit_the_encoder(tmp_path: Path) -> None:
    model().save(tmp_path)
    assert StatementModel.load(tmp_path) == model()
    with pytest.raises(BadInput, match="use words"):
        model().scores(np.zeros((1, 3)))


def test_a_remark_of_two_words_stands_with_the_sentence_before_it() -> None:
    assert split_statements("My exam is back. 81! Now what? Ok. I sold my bike. 130 quid.") == [
        "My exam is back. 81!",
        "Now what?",
        "Ok.",
        "I sold my bike. 130 quid.",
    ]
