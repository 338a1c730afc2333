"""Measures of words against worked examples and against the libraries called directly."""

import pytest
from rouge_score.rouge_scorer import RougeScorer

from localmem.errors import BadInput
from localmem.evaluation.metrics.text import locomo_f1, rouge, token_f1


@pytest.mark.parametrize(
    ("text", "gold", "score"),
    [
        ("The cat sat.", "a cat sat down", 2 * 2 / (2 + 3)),  # cat sat / cat sat down
        ("In Porto!", "porto", 2 * 1 / (2 + 1)),
        ("no no no", "no", 2 * 1 / (3 + 1)),  # a word counts as often as both have it
        ("Lima", "Oslo", 0.0),
        ("", "Oslo", 0.0),
        ("the", "a", 1.0),  # nothing is left of either
    ],
)
def test_token_f1(text: str, gold: str, score: float) -> None:
    assert token_f1(text, gold) == pytest.approx(score)


def test_locomo_stems_and_drops_and() -> None:
    assert locomo_f1("running and hiking", "hikes, runs", "single-hop") == 1.0


def test_locomo_multi_hop_matches_each_part_with_the_best() -> None:
    # "tennis" finds tennis (1.0); "the red piano" finds piano: 2 * 1 / (1 + 2)
    assert locomo_f1("piano, tennis", "tennis, the red piano", "multi-hop") == pytest.approx((1 + 2 / 3) / 2)


def test_locomo_open_domain_ends_at_the_semicolon() -> None:
    assert locomo_f1("yes", "Yes; she loves animals", "open-domain") == 1.0
    assert locomo_f1("yes", "Yes; she loves animals", "single-hop") < 1.0


def test_locomo_what_was_never_said_is_right_when_the_answer_says_so() -> None:
    assert locomo_f1("That is not mentioned anywhere.", "a bike", "adversarial") == 1.0
    assert locomo_f1("a bike", "a bike", "adversarial") == 0.0


def test_rouge_is_the_library_s() -> None:
    texts, golds = ["Ana moved to Porto in May.", "She has cats"], ["In May Ana moved house.", "She has one cat."]
    ours = rouge(texts, golds)
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    for number, (text, gold) in enumerate(zip(texts, golds, strict=True)):
        theirs = scorer.score(gold, text)
        assert {kind: ours[kind][number] for kind in ours} == {kind: theirs[kind].fmeasure for kind in theirs}
    assert ours["rouge1"][1] == pytest.approx(2 * 3 / (3 + 4))  # she, has, cat


def test_lists_of_unequal_length_are_refused() -> None:
    with pytest.raises(BadInput, match="2 texts and 1 gold"):
        rouge(["a", "b"], ["a"])
