"""The rules for replies: answers as whole words, what a clause denies, and the labelled replies as a floor."""

import pytest

from localmem.evaluation.metrics.replies import abstains, contains_answer
from tests.perf.measure_reply_rules import measure_answers, measure_denials, read_labels


@pytest.mark.parametrize(
    "answer, accepted, rejected, right",
    [
        ("Your dog is called BRUNO!", ["Bruno"], [], True),
        ("You live in Lyon.", ["lyon"], ["Paris"], True),
        ("You moved from Paris to Lyon.", ["Lyon"], ["Paris"], False),
        ("A catalogue", ["cat"], [], False),
        ("São Paulo, Brazil", ["Sao Paulo"], [], True),
        ("at 7:30 pm", ["7 30"], [], True),
        ("", ["x"], [], False),
        ("I do not know.", ["May 4th", "4 May"], [], False),
        ("It's on 4 May", ["May 4th", "4 may"], [], True),
        ("민수 씨", ["민수"], [], True),
    ],
)
def test_an_answer_is_found_as_whole_words(answer: str, accepted: list[str], rejected: list[str], right: bool) -> None:
    assert contains_answer(answer, accepted, rejected) is right


def test_an_answer_that_is_denied_is_not_given() -> None:
    assert not contains_answer("It is not Lyon, it is Paris.", ["Lyon"])
    assert contains_answer("It is not Lyon, it is Paris.", ["Paris"], ["Lyon"])
    assert contains_answer("It is on 4.5. at noon, not later.", ["4 5 at noon"]), "an answer may span clauses"


def test_the_rules_are_as_good_as_they_were() -> None:
    labels = read_labels()
    rates = [measure_denials(labels[name]) for name in ("denies", "strangers")]
    for measured in (*rates, measure_answers(labels["answers"])):
        assert measured.precision >= 0.98
        assert measured.recall >= 0.95
    unknown = measure_denials(labels["later"])
    assert (unknown.positives, unknown.negatives) == (50, 50)
    assert unknown.precision >= 0.96
    assert unknown.recall >= 0.64


def test_a_denial_is_the_speakers_own() -> None:
    assert abstains("I haven\u2019t been told that yet.")
    assert not abstains("Your sister has no idea about the party.")
