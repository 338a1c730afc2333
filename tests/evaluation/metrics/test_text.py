"""Measures of words against worked examples and against the libraries called directly."""

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
import sacrebleu
from nltk.metrics.scores import f_measure, precision, recall
from nltk.stem import PorterStemmer
from nltk.util import ngrams
from rouge_score.rouge_scorer import RougeScorer
from sklearn.metrics import precision_recall_fscore_support

from localmem.errors import BadInput
from localmem.evaluation.metrics.text import (
    bleu,
    distinct,
    locomo_f1,
    match_sentences,
    overlap,
    rouge,
    rouge_similarities,
    shared_words,
    token_f1,
)

TEXTS = ["Ana moved to Porto in May.", "She has cats", "It's 7.5 km, isn't it?"]
GOLDS = ["In May Ana moved house.", "She has one cat.", "It is 7.5 km from here."]


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


def test_f1_is_that_of_squad_s_code_where_words_have_no_marks_inside() -> None:
    from transformers.data.metrics.squad_metrics import compute_f1

    for text, gold in (("The cat sat.", "a cat sat down"), ("In Porto!", "porto"), ("no no no", "no"), ("the", "a")):
        assert token_f1(text, gold) == pytest.approx(compute_f1(gold, text))


def test_overlap_tells_precision_from_recall() -> None:
    assert overlap("the red old cat", "a cat sat") == pytest.approx((1 / 3, 1 / 2, 2 / 5))


def test_locomo_f1_is_nltk_s_measure_over_stems() -> None:
    stem = PorterStemmer().stem
    text, gold = "painting two happier horses", "happy horse paintings"
    ours = {stem(word) for word in text.split()}
    theirs = {stem(word) for word in gold.split()}
    assert locomo_f1(text, gold, "temporal") == pytest.approx(f_measure(theirs, ours))
    assert locomo_f1("", "", "temporal") == 0.0


@pytest.mark.parametrize("stem", [False, True])
def test_rouge_is_the_library_s(stem: bool) -> None:
    ours = rouge(TEXTS, GOLDS, stem=stem)
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stem)
    for number, (text, gold) in enumerate(zip(TEXTS, GOLDS, strict=True)):
        theirs = scorer.score(gold, text)
        assert {kind: ours[kind][number] for kind in ours} == {kind: theirs[kind].fmeasure for kind in theirs}


def test_rouge_by_hand() -> None:
    # she, has of three and four words; she has, of two and three pairs; the cats are a cat with stems only
    ours = rouge(["She has cats"], ["She has one cat."])
    assert ours == {
        "rouge1": [pytest.approx(4 / 7)],
        "rouge2": [pytest.approx(2 / 5)],
        "rougeL": [pytest.approx(4 / 7)],
    }
    assert rouge(["She has cats"], ["She has one cat."], ["rouge1"], stem=True) == {"rouge1": [pytest.approx(6 / 7)]}


def test_rouge_takes_the_nearest_of_several_and_knows_other_scripts() -> None:
    assert rouge(["a red kite"], [["nothing", "a red kite"]], ["rougeL"]) == {"rougeL": [1.0]}
    # rouge-score alone finds no word in these
    assert RougeScorer(["rouge1"]).score("고양이 가 있다", "고양이 가 없다")["rouge1"].fmeasure == 0
    assert rouge(["고양이 가 없다"], ["고양이 가 있다"], ["rouge1"]) == {"rouge1": [pytest.approx(2 / 3)]}
    assert rouge(["我喜欢雪"], ["我喜欢茶"], ["rouge1"]) == {"rouge1": [pytest.approx(3 / 4)]}
    assert rouge(["café crème"], ["cafe creme"], ["rouge1"]) == {"rouge1": [0.0]}  # Latin: the library's own words


def test_the_rouge_of_a_text_does_not_depend_on_the_script_of_others() -> None:
    text, gold = "a naïve snake_case idea", "naive snake case idea"
    assert rouge([text, "好的"], [gold, "好的"], ["rougeL"])["rougeL"] == [rouge([text], [gold])["rougeL"][0], 1.0]


@pytest.mark.parametrize("order", [1, 2, 4])
def test_bleu_is_the_library_s(order: int) -> None:
    ours = bleu(TEXTS, GOLDS, order)  # type: ignore[arg-type]  # a parameter is an int
    corpus = sacrebleu.BLEU(max_ngram_order=order).corpus_score(TEXTS, [GOLDS]).score
    alone = sacrebleu.BLEU(max_ngram_order=order, effective_order=True)
    assert ours.corpus == corpus
    assert ours.each == [alone.sentence_score(text, [gold]).score for text, gold in zip(TEXTS, GOLDS, strict=True)]
    if order == 4:
        assert ours.corpus == sacrebleu.corpus_bleu(TEXTS, [GOLDS]).score
        assert ours.each[0] == sacrebleu.sentence_bleu(TEXTS[0], [GOLDS[0]]).score


def test_bleu_by_hand() -> None:
    text, gold = "the cat sat on a mat", "the cat sat on the mat"
    assert bleu([text], [gold], 1).corpus == pytest.approx(100 * 5 / 6)
    assert bleu([text], [gold], 2).corpus == pytest.approx(100 * math.sqrt(5 / 6 * 3 / 5))
    fourth = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** (1 / 4)
    assert bleu([text], [gold]).corpus == pytest.approx(fourth)
    # two words of six are a third, and so short a text is punished by exp(1 - 6 / 2)
    assert bleu(["the cat"], [gold], 1).corpus == pytest.approx(100 * math.exp(1 - 6 / 2))


def test_bleu_takes_as_many_gold_texts_as_there_are() -> None:
    golds: Sequence[str | Sequence[str]] = [["a red kite flew off", "the red kite flew away"], "x y z"]
    ours = bleu(["the red kite flew away", "x y z"], golds)
    assert ours.corpus == pytest.approx(100)
    assert bleu([], []).each == []
    with pytest.raises(BadInput, match="text 2 has no gold text"):
        bleu(["a", "b"], ["a", ["", " "]])


def test_distinct_by_hand_and_by_nltk() -> None:
    texts = ["The dog and the dog!", "dog and fish"]  # dog and dog, dog and fish: articles and marks do not count
    assert distinct(texts, 1) == pytest.approx(3 / 6)
    assert distinct(texts, 2) == pytest.approx(3 / 4)  # (dog and) comes twice
    words = [["dog", "and", "dog"], ["dog", "and", "fish"]]
    grams = [gram for row in words for gram in ngrams(row, 2)]
    assert distinct(texts, 2) == len(set(grams)) / len(grams)
    assert distinct(["one"], 2) == 0.0


def test_lists_of_unequal_length_are_refused() -> None:
    with pytest.raises(BadInput, match="2 texts and 1 gold"):
        rouge(["a", "b"], ["a"])


MEMORIES = ["Ana keeps bees.", "Ben lives in Porto.", "Ana is rich."]
GOLD_MEMORIES = ["Ana keeps bees.", "Ben is living in Porto."]


def test_words_that_a_memory_shares_with_the_gold_one() -> None:
    # ana keeps bees ben lives in porto ana is rich: 10 words; ana keeps bees ben is living in porto: 8; 7 in common
    assert shared_words(MEMORIES, GOLD_MEMORIES) == pytest.approx((7 / 10, 7 / 8, 14 / 18))


def test_shared_words_are_nltk_s_precision_and_recall_where_no_word_comes_twice() -> None:
    memory, gold = ["ana keeps bees", "ben sails"], ["ana keeps two dogs"]
    ours, theirs = ({word for text in texts for word in text.split()} for texts in (memory, gold))
    overlap = shared_words(memory, gold)
    assert overlap == pytest.approx((precision(theirs, ours), recall(theirs, ours), f_measure(theirs, ours)))


def test_sentences_are_paired_one_to_one() -> None:
    # the second memory is like both golds, the first like one alone: both can be paired
    table = np.array([[0.0, 0.9], [0.8, 0.7], [0.1, 0.2]], dtype=np.float32)
    assert match_sentences(table, 0.5) == pytest.approx((2 / 3, 1.0, 4 / 5))
    assert match_sentences(table, 0.85) == pytest.approx((1 / 3, 1 / 2, 2 / 5))
    assert match_sentences(np.zeros((0, 2), dtype=np.float32)) == (0.0, 0.0, 0.0)
    assert match_sentences(np.zeros((0, 0), dtype=np.float32)) == (1.0, 1.0, 1.0)


def test_no_pairing_has_more_pairs() -> None:
    draw = np.random.default_rng(3)
    for _ in range(50):
        table = draw.random((4, 4), dtype=np.float32)
        best = max(
            sum(table[row, column] >= 0.6 for row, column in enumerate(order)) for order in permutations(range(4))
        )
        assert match_sentences(table, 0.6).recall == pytest.approx(best / 4)


def test_equal_sentences_are_scikit_learn_s_precision_and_recall() -> None:
    memory, gold = {"a", "b", "c"}, {"b", "c", "d", "e"}
    table = np.array([[ours == theirs for theirs in sorted(gold)] for ours in sorted(memory)], dtype=np.float32)
    sentences = sorted(memory | gold)
    *expected, _ = precision_recall_fscore_support(
        [sentence in gold for sentence in sentences], [sentence in memory for sentence in sentences], average="binary"
    )
    assert match_sentences(table, 1.0) == pytest.approx(tuple(expected))


def test_sentences_alike_by_their_words() -> None:
    table = rouge_similarities(MEMORIES, GOLD_MEMORIES)
    assert table.shape == (3, 2)
    assert table[0, 0] == 1.0
    assert table[1, 1] == pytest.approx(2 * 4 / (4 + 5))  # ben, live, in, porto
    assert match_sentences(table) == pytest.approx((2 / 3, 1.0, 4 / 5))
    assert match_sentences(table, 1.0) == pytest.approx((1 / 3, 1 / 2, 2 / 5))
    assert rouge_similarities([], GOLD_MEMORIES).shape == (0, 2)


def test_similarities_must_be_a_table() -> None:
    with pytest.raises(BadInput, match=r"the shape \(3,\)"):
        match_sentences(np.zeros(3, dtype=np.float32))
