"""What counts as owning up to not knowing, and that the shipped questions are whole."""

import pytest

from localmem.errors import BadInput
from localmem.evaluation.abstention import abstains, read_cases
from localmem.resources import resource

QUESTIONS = resource("configs/eval/abstention/questions.yaml")


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
def test_saying_so_counts(reply: str) -> None:
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
def test_other_negations_do_not(reply: str) -> None:
    assert not abstains(reply)


def test_the_shipped_cases_hold_what_they_ask_for() -> None:
    cases = read_cases(QUESTIONS)
    assert sum(len(case.never) for case in cases) >= 40
    for case in cases:
        said = resource(case.conversation).read_text(encoding="utf-8").lower()
        for one in case.told:
            assert any(text.lower() in said for text in one.accept), one.question


def test_a_file_without_cases_is_one_line(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "none.yaml"
    path.write_text("questions: []\n", encoding="utf-8")
    with pytest.raises(BadInput, match="holds no cases"):
        read_cases(path)
