"""Standing instructions: which statements are some, and that requests for help find them."""

from collections.abc import Sequence

import pytest

from localmem.systems.evidence.instructions import latest_instructions, lift_instructions
from localmem.systems.evidence.units import places, turn_units
from localmem.types import Hit, Unit
from tests.fakes import session
from tests.systems.test_evidence import WordOverlap, ask, memory, remember


class Even(WordOverlap):
    """Holds every text equally likely."""

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        return [0.2 for _ in texts]


def unit(text: str) -> Unit:
    dialogue = session(text, name=text[:20])
    return turn_units(dialogue.id, places(dialogue)[0])[0]


@pytest.mark.parametrize(
    "text",
    [
        "By the way, when you write something for me, keep it under 50 words.",
        "pls dont give me long lists, i get lost",
        "I'd prefer things to be told plainly.",
        "Call me Shiru, only the bank says Wanjiru.",
        "One thing, for recipes give me grams, I never know what a cup is.",
        "When I ask you about my code, comment it in English.",
        "I can't have shrimp, my throat closes.",
        "My wife is allergic to cats.",
    ],
)
def test_what_tells_how_to_help_is_an_instruction(text: str) -> None:
    assert latest_instructions([unit(text)])


@pytest.mark.parametrize(
    "text",
    [
        "My sister Anna likes it in Porto.",
        "We moved to Leeds in May.",
        "The rent is 445 now.",
        "I read the letter twice.",
        "We don't have a car, and I can't stand up.",
    ],
)
def test_what_tells_of_a_life_is_none(text: str) -> None:
    assert not latest_instructions([unit(text)])


def test_only_the_latest_few_are_looked_at() -> None:
    assert len(latest_instructions(unit(f"Call me number {n}.") for n in range(9))) == 5


def test_an_instruction_is_lifted_and_nothing_is_hidden() -> None:
    first, second, third = (
        [Hit(unit(text), score)]
        for text, score in (("The cat is ill.", 0.5), ("The soup was good.", 0.3), ("Please keep it short.", 0.2))
    )
    lifted = lift_instructions([first, second, third])
    assert [hits[0].unit for hits in lifted] == [hits[0].unit for hits in (third, first, second)]
    assert lifted[1:] == [first, second]


def test_a_request_for_help_is_shown_an_instruction_that_shares_no_word_with_it() -> None:
    sessions = [
        session(f"The parcel number {n} came on a Monday in the rain.", "Good.", name=f"s{n}") for n in range(30)
    ]
    rule = session("When you explain things, use an example.", "I will.", name="rule")
    system = remember(memory(Even(), tokens=200), rule, *sessions)
    recall = ask(system, "Write two lines on recursion")
    assert "use an example" in recall.text
    question = ask(system, "What did I say now came on a Monday?")
    assert "use an example" not in question.text
