"""The rule for replies that admit not knowing, and the shipped questions."""

import pytest

from localmem.errors import BadInput
from localmem.evaluation import DATA
from localmem.evaluation.metrics.replies import abstains
from localmem.experiments.demo import read_cases

QUESTIONS = DATA / "abstention" / "questions.yaml"


@pytest.mark.parametrize(
    "reply",
    [
        "I don't know what your cat is called.",
        "You haven't told me that yet.",
        "You never mentioned a brother.",
        "I\N{RIGHT SINGLE QUOTATION MARK}m not sure, but it may be Tom.",
        "I have no record of that.",
        "I do not actually know.",
        "We haven't talked about that.",
        "I don't have any information about your car.",
    ],
)
def test_a_reply_that_admits_not_knowing_abstains(reply: str) -> None:
    assert abstains(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "Your cat is called Tom.",
        "You can't stand olives.",
        "You don't like crowds.",
        "Don't forget your keys!",
        "Your sister does not eat meat.",
        "",
    ],
)
def test_other_negations_do_not_abstain(reply: str) -> None:
    assert not abstains(reply)


def test_the_shipped_conversations_contain_the_answers() -> None:
    cases = read_cases(QUESTIONS)
    assert sum(len(case.unanswered) for case in cases) >= 40
    for case in cases:
        conversation = (DATA / case.conversation).read_text(encoding="utf-8").lower()
        for question in case.answered:
            assert any(text.lower() in conversation for text in question.accept), question.question


def test_a_file_without_cases_is_an_error(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "none.yaml"
    path.write_text("questions: []\n", encoding="utf-8")
    with pytest.raises(BadInput, match="give a mapping with `cases`"):
        read_cases(path)
