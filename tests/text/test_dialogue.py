"""How dialogues are written out and cut."""

from hypothesis import given
from hypothesis import strategies as st

from localmem.text.dialogue import dated, parts, transcript
from tests.fakes import START, turns, unit


def _words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def test_writing_out() -> None:
    assert transcript(turns("hi", "hello")) == "User: hi\nAssistant: hello"
    assert dated([unit("a", "likes tea", time=START)]) == "2 March 2026: likes tea"


@given(st.lists(st.integers(1, 30), max_size=30), st.integers(2, 40))
def test_parts_lose_nothing_and_keep_the_budget(lengths: list[int], budget: int) -> None:
    said = turns(*(" ".join("w" * length) for length in lengths))
    runs = parts(said, budget, lambda texts: _words(list(texts)))
    assert [turn for run in runs for turn in run] == list(said)
    assert all(len(run) == 1 or sum(_words([transcript([t]) for t in run])) <= budget for run in runs)
