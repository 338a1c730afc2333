"""Units of a session, and as many of them as fit."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from localmem.llm.scripted import ScriptedLLM
from localmem.text.dialogue import (
    history_budget,
    history_text,
    newest_units,
    recall_units,
    select_fitting,
    statement_units,
    utterance_units,
)
from localmem.types import Session
from tests.fakes import START, obedient, session, unit


def _words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def test_each_turn_is_a_unit_that_names_its_source() -> None:
    past = session("내 개는 초코", "🐶!")
    first, second = utterance_units(past)
    assert (first.text, first.key) == ("User: 내 개는 초코", "내 개는 초코")
    assert (second.text, second.speaker) == ("Assistant: 🐶!", "Assistant")
    assert [u.sources for u in (first, second)] == [("s1.0",), ("s1.1",)]
    assert second.time == past.turns[1].time
    assert utterance_units(Session("empty")) == []


def test_sessions_stand_under_their_dates() -> None:
    later = session("Back again", name="s2", start=START + timedelta(days=3))
    text = history_text([*utterance_units(session("Hello", "Hi")), *utterance_units(later)])
    assert text == "2 March 2026\nUser: Hello\nAssistant: Hi\n\n5 March 2026\nUser: Back again"
    assert history_text([]) == ""


@given(sizes=st.lists(st.integers(1, 9), max_size=200), budget=st.integers(0, 300))
def test_the_newest_that_fit_are_shown_and_no_more_could_be(sizes: list[int], budget: int) -> None:
    units = [unit(f"u{n}", "word " * size) for n, size in enumerate(sizes)]
    newest = newest_units(units, budget, _words)
    assert newest == units[len(units) - len(newest) :]
    assert sum(sizes[len(units) - len(newest) :]) <= budget
    if len(newest) < len(units):
        assert sum(sizes[len(units) - len(newest) - 1 :]) > budget


def test_counting_a_long_past_costs_what_is_shown() -> None:
    counted: list[str] = []

    def count(texts: Sequence[str]) -> list[int]:
        counted.extend(texts)
        return _words(texts)

    newest_units([unit(f"u{n}", "one two three") for n in range(5000)], 30, count)
    assert len(counted) <= 100


def test_the_room_shrinks_with_the_dialogue_and_is_never_below_nothing() -> None:
    llm = ScriptedLLM(lambda _: "", context_length=1000)
    short, long = (history_budget(llm, session(*["some words here"] * n), "carecall/fuse") for n in (1, 20))
    assert 0 < long < short < 1000
    assert history_budget(llm, session("hello"), "carecall/fuse", "beside " * 100) < short
    assert history_budget(llm, session("word " * 2000), "carecall/fuse") == 0


def test_statements_come_from_the_whole_session_and_are_told_apart() -> None:
    past = session("a", "b")
    first, second = statement_units(past, ["One.", "Two."], "memory")
    assert (first.id, second.id) == ("s1/memory0", "s1/memory1")
    assert first.sources == ("s1.0", "s1.1")
    assert first.time == first.learned == past.turns[-1].time


def test_all_are_shown_where_there_is_room() -> None:
    units = [unit(str(n), "word " * 5) for n in range(9)]
    fallbacks: Counter[str] = Counter()
    assert select_fitting(ScriptedLLM(obedient), session("hi"), "agent/respond", units, fallbacks) == units
    assert fallbacks == {}


def test_dates_count_too() -> None:
    """Units of one word, each shown with a date of three."""
    units = [unit(str(n), "word", time=START + timedelta(days=n)) for n in range(100)]
    llm = ScriptedLLM(obedient, context_length=256 + 100)
    selected = select_fitting(llm, session("hi"), "agent/respond", units, Counter())
    assert selected == units[-len(selected) :]
    (size,) = llm.count_tokens([recall_units(selected).text])
    assert 60 < size <= 75


def test_nothing_is_nothing() -> None:
    assert select_fitting(ScriptedLLM(obedient), session("hi"), "agent/respond", [], Counter()) == []
    assert recall_units([]).text == ""
