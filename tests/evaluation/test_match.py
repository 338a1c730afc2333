"""String match counts words, not letters, and knows outdated facts."""

import pytest

from localmem.evaluation.match import says


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
def test_says(answer: str, accepted: list[str], rejected: list[str], right: bool) -> None:
    assert says(answer, accepted, rejected) is right
