"""Past dialogue word for word: what is kept, how much of it is shown, and how it is written out."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from localmem.llm.scripted import ScriptedLLM
from localmem.text.history import newest, room, utterances, written
from localmem.types import Session
from tests.fakes import START, session, unit


def _words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def test_each_turn_is_a_unit_that_names_its_source() -> None:
    said = session("내 개는 초코", "🐶!")
    first, second = utterances(said)
    assert (first.text, first.key) == ("User: 내 개는 초코", "내 개는 초코")
    assert (second.text, second.speaker) == ("Assistant: 🐶!", "Assistant")
    assert [u.sources for u in (first, second)] == [("s1.0",), ("s1.1",)]
    assert second.time == said.turns[1].time
    assert utterances(Session("empty")) == []


def test_sessions_stand_under_their_dates() -> None:
    later = session("Back again", name="s2", start=START + timedelta(days=3))
    text = written([*utterances(session("Hello", "Hi")), *utterances(later)])
    assert text == "2 March 2026\nUser: Hello\nAssistant: Hi\n\n5 March 2026\nUser: Back again"
    assert written([]) == ""


@given(sizes=st.lists(st.integers(1, 9), max_size=200), budget=st.integers(0, 300))
def test_the_newest_that_fit_are_shown_and_no_more_could_be(sizes: list[int], budget: int) -> None:
    units = [unit(f"u{n}", "word " * size) for n, size in enumerate(sizes)]
    kept = newest(units, budget, lambda texts: _words(list(texts)))
    assert kept == units[len(units) - len(kept) :]
    assert sum(sizes[len(units) - len(kept) :]) <= budget
    if len(kept) < len(units):
        assert sum(sizes[len(units) - len(kept) - 1 :]) > budget


def test_counting_a_long_past_costs_what_is_shown() -> None:
    counted: list[str] = []

    def count(texts: list[str]) -> list[int]:
        counted.extend(texts)
        return _words(texts)

    newest([unit(f"u{n}", "one two three") for n in range(5000)], 30, lambda texts: count(list(texts)))
    assert len(counted) <= 100


def test_the_room_shrinks_with_the_dialogue_and_is_never_below_nothing() -> None:
    llm = ScriptedLLM(lambda _: "", context_length=1000)
    short, long = (room(llm, session(*["some words here"] * n), "carecall/fuse") for n in (1, 20))
    assert 0 < long < short < 1000
    assert room(llm, session("hello"), "carecall/fuse", "beside " * 100) < short
    assert room(llm, session("word " * 2000), "carecall/fuse") == 0
