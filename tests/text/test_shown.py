"""Units of a session, and as many of them as fit."""

from collections import Counter
from datetime import timedelta

from localmem.llm.scripted import ScriptedLLM
from localmem.text.shown import all_that_fit, recalled, statements
from tests.fakes import START, obedient, session, unit


def test_statements_come_from_the_whole_session_and_are_told_apart() -> None:
    said = session("a", "b")
    first, second = statements(said, ["One.", "Two."], "memory")
    assert (first.id, second.id) == ("s1/memory0", "s1/memory1")
    assert first.sources == ("s1.0", "s1.1")
    assert first.time == first.learned == said.turns[-1].time


def test_all_are_shown_where_there_is_room() -> None:
    units = [unit(str(n), "word " * 5) for n in range(9)]
    fallbacks: Counter[str] = Counter()
    assert all_that_fit(ScriptedLLM(obedient), session("hi"), "agent/respond", units, fallbacks) == units
    assert fallbacks == {}


def test_dates_count_too() -> None:
    """Units of one word, each shown with a date of three."""
    units = [unit(str(n), "word", time=START + timedelta(days=n)) for n in range(100)]
    llm = ScriptedLLM(obedient, context_length=256 + 100)
    kept = all_that_fit(llm, session("hi"), "agent/respond", units, Counter())
    assert kept == units[-len(kept) :]
    (shown,) = llm.count_tokens([recalled(kept).text])
    assert 60 < shown <= 75


def test_nothing_is_nothing() -> None:
    assert all_that_fit(ScriptedLLM(obedient), session("hi"), "agent/respond", [], Counter()) == []
    assert recalled([]).text == ""
