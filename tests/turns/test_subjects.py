"""Which sentences may be about the same person."""

import pytest

from localmem.turns.subjects import may_share_subject


@pytest.mark.parametrize(
    ("old", "new", "may"),
    [
        ("I work nights in Tacoma.", "Marcus moved to Boise for work.", False),
        ("I live in Tacoma with my wife.", "My sister lives in Denver now.", False),
        ("My dog is called Rex.", "My sister's dog is called Luna.", False),
        ("I work nights in Tacoma.", "He works at Boeing now.", False),
        ("I work nights in Tacoma.", "They moved the whole shift to Kent.", True),
        ("I work nights in Tacoma.", "Marcus got me a job at Boeing.", True),
        ("I live in Tacoma.", "We moved to Olympia.", True),
        ("My rent is 780.", "Rent is 815 now.", True),
        ("My rent is 780.", "815 from June.", True),
        ("My rent is 780.", "The rent went up to 815.", True),
        ("My rent is 780.", "New rent is 815.", True),
        ("We pay 300 a day.", "Now our wage is 350.", True),
        ("My wife is a nurse.", "She's a midwife now.", True),
        ("My sister Ann lives in Leeds.", "My brother lives in York.", False),
        ("My brother Marcus lives in Denver.", "Marcus moved to Boise.", True),
        ("My brother Marcus lives in Denver.", "My friend Marcus moved to Boise.", True),
        ("210 a day.", "Rate's 230 now.", True),
        ("I work nights.", "...", True),
    ],
)
def test_sentences_that_open_with_different_people_are_about_different_ones(old: str, new: str, may: bool) -> None:
    assert may_share_subject(old, new) is may
