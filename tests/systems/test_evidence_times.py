"""Evidence for questions about time: what fits them is lifted and nothing hidden, and what follows is worked out."""

from collections.abc import Sequence
from datetime import date, timedelta

from localmem.memory import Memory
from localmem.retrieval.base import Scope
from localmem.systems.evidence.time_questions import lift_by_time, scopes_of_times
from localmem.text.passages import estimate_tokens
from localmem.types import Hit, Session, Unit
from tests.fakes import START, session
from tests.systems.test_evidence import WordOverlap, ask, memory, remember


def told(text: str, name: str, days: int) -> Session:
    return session(text, "Noted.", name=name, start=START + timedelta(days=days))


BILL = told("I sent the bill to the Legion yesterday.", "s1", 3)
PAID = told("The Legion has paid the bill now, it came yesterday.", "s2", 31)
CATS = told("My cats love salmon more than anything.", "s3", 5)
QUESTION = "How long did the Legion take to pay the bill?"


def log(tokens: int = 600, *, work_out: bool = True) -> Memory:
    return remember(memory(WordOverlap(), tokens=tokens, work_out=work_out), BILL, PAID, CATS)


def test_what_follows_is_appended_with_its_sources() -> None:
    recall = ask(log(), QUESTION, days=60)
    (working,) = recall.workings
    assert (working.text, working.sources) == ("4 March to 1 April 2026 is 28 days (4 weeks)", ("s1.0", "s2.0"))
    assert recall.text.splitlines()[-1] == f"worked out: {working.text} [turns s1.0, s2.0]"


def test_what_is_worked_out_rests_on_no_doubtful_sentence_but_on_those_beside_it() -> None:
    """The bill counts beside what the move made doubtful, and no longer where it was itself of what ended."""
    moved = told("We moved from Lyon to Nantes.", "s4", 40)
    beside = told("My dentist in Lyon is Dr Vial. I sent the bill to the Legion yesterday.", "s1", 3)
    named = told("I sent the bill to the Legion from my flat in Lyon yesterday.", "s1", 3)
    systems = [remember(memory(WordOverlap()), first, PAID, moved) for first in (beside, named)]
    lengths = [[working.text for working in ask(system, QUESTION, days=60).workings] for system in systems]
    assert lengths == [["4 March to 1 April 2026 is 28 days (4 weeks)"], []]


def test_nothing_is_worked_out_where_it_is_not_wanted_or_not_sure() -> None:
    for work_out, question in ((False, QUESTION), (True, "What do my cats love?")):
        recall = ask(log(work_out=work_out), question, days=60)
        assert recall.workings == ()
        assert "worked out" not in recall.text


def test_a_result_is_within_the_budget() -> None:
    recall = ask(log(tokens=60), QUESTION, days=60)
    assert recall.workings
    assert estimate_tokens(recall.text) <= 60


def hits(*days: int, text: str = "User: I planted something.") -> list[list[Hit]]:
    times = [START + timedelta(days=day) for day in days]
    units = [
        Unit(f"u{day}", text, text, "statement", "User", "s", ("t",), at, at)
        for day, at in zip(days, times, strict=True)
    ]
    return [[Hit(unit, 0.9 - number / 100)] for number, unit in enumerate(units)]


def order(question: str, exchanges: Sequence[Sequence[Hit]], day: date = date(2026, 6, 10)) -> list[str]:
    return [each[0].unit.id for each in lift_by_time(question, day, [list(each) for each in exchanges])]


def test_what_was_told_in_the_time_that_is_asked_for_comes_first_and_nothing_is_hidden() -> None:
    assert order("What did I plant in April?", hits(0, 75, 40)) == ["u40", "u0", "u75"]
    assert order("What did I plant?", hits(0, 75, 40)) == ["u0", "u75", "u40"]


def test_what_took_place_in_the_time_that_is_asked_for_comes_first() -> None:
    later = hits(2, text="User: I plant beans on 7 May 2026.")
    assert order("What did I plan for May 2026?", [*hits(0), *later])[0] == "u2"


def test_first_and_latest() -> None:
    assert order("What was my first tree?", hits(20, 0, 40))[0] == "u0"
    assert order("What is my latest tree?", hits(20, 0, 40))[0] == "u40"


def test_before_an_event() -> None:
    moved = hits(30, text="User: We moved to Leeds.")
    assert order("Who fed the cat before we moved to Leeds?", [*hits(50, 10), *moved])[0] != "u50"


def test_a_search_without_a_time_is_not_lifted() -> None:
    system = log()
    hits = system.search(QUESTION, 3)
    lifted = system.search(QUESTION, 3, Scope(now=START + timedelta(days=60)))
    assert {hit.unit.id for hit in hits} == {hit.unit.id for hit in lifted}


def test_what_was_told_in_a_short_time_that_is_named_is_looked_at_too() -> None:
    gardens = [told(f"The garden has {number} new roses.", f"g{number}", number) for number in range(20, 26)]
    system = remember(memory(WordOverlap(), candidates=6), told("The plumber mended our tap.", "p", 8), *gardens)
    day = START + timedelta(days=8)
    text = ask(system, f"What was mended in the garden on {day.day} March 2026?").text
    assert "plumber" in text
    assert "plumber" not in ask(system, "What has the garden?").text
    assert scopes_of_times("What happened in 2025?", Scope(now=day)) == []  # too long to look through
    assert scopes_of_times("What happened yesterday?", Scope(now=day, since=START)) == []
