"""What an announcement change makes doubtful, and what it leaves alone."""

import re
from datetime import timedelta

import pytest

from localmem.systems.evidence import dependents
from localmem.systems.evidence.dependents import DOUBTS, SAID_BEFORE, link_dependents, read_announced_change, rests_on
from localmem.systems.evidence.updates import Updates
from localmem.types import Hit, Link, Unit
from tests.fakes import START

MOVED = "We moved from Lyon to Nantes."


def _statement(name: str, text: str, days: int = 0, kind: str = "statement") -> Unit:
    time = START + timedelta(days=days)
    return Unit(f"{name}@u0", f"User: {text}", f"User: {text}", kind, "User", name, (name,), time, time)


@pytest.mark.parametrize(
    ("change", "earlier"),
    [
        (MOVED, "My dentist in Lyon is Dr Vial."),
        (MOVED, "I cycle to work in nine minutes."),
        ("Tom and I broke up.", "Tom's mother is visiting in June."),
        ("The trip to Oslo is off.", "Our hotel is the Bristol."),
        ("we sold the caravan", "our caravan is at filey, pitch 12"),
        ("I quit my job at Ostler.", "My boss is called Mark."),
        ("Biscuit died last night.", "Biscuit gets her pills at eight."),
        ("Danuta doesn't come any more.", "Our cleaner Danuta comes on Thursdays."),
        ("I stepped down from the council.", "The council meets on Mondays."),
        ("We won't be going to Crete after all.", "We're flying to Crete on 4 July."),
        ("I've cancelled my gym membership.", "My gym is Pulse on Baker Street."),
        ("I don't swim any more.", "I go swimming with Petra at seven."),
        ("We've let the window cleaner go.", "The window cleaner comes on Monday."),
        ("My guest pass has run out.", "I have a guest pass for the pool."),
    ],
)
def test_what_rested_on_what_changed_is_doubtful(change: str, earlier: str) -> None:
    announcement = read_announced_change(change)
    assert announcement is not None
    assert rests_on(earlier, announcement)


@pytest.mark.parametrize(
    ("change", "earlier"),
    [
        (MOVED, "My sister Clara lives in Lyon."),
        (MOVED, "I was born in Lyon."),
        (MOVED, "I like tea."),
        ("The trip to Oslo is off.", "My boss is called Mark."),
        ("I quit my job at Ostler.", "My cat is grey."),
    ],
)
def test_other_statements_stay_as_they_are(change: str, earlier: str) -> None:
    announcement = read_announced_change(change)
    assert announcement is not None
    assert not rests_on(earlier, announcement)


@pytest.mark.parametrize(
    "text",
    [
        "I like tea.",
        "Is the trip off?",
        "We moved to Lyon in 2003.",
        "She moved the chair.",
        "Maybe I cancel the gym.",
        "I haven't sold the car.",
        "Freja has gone to Greece.",
        "The lamp is over the table.",
    ],
)
def test_most_sentences_change_nothing(text: str) -> None:
    assert read_announced_change(text) is None


def test_only_earlier_statements_of_the_user_are_linked() -> None:
    new = _statement("s2", MOVED, days=9)
    dentist, later = _statement("s1", "My dentist in Lyon is Dr Vial."), _statement("s3", "My gym is in Lyon.", days=20)
    pasted = _statement("s0", "Lyon is our city.", kind="document")
    links = link_dependents([new], lambda: [later, new, dentist, pasted])
    assert [change.link for change in links] == [Link("s2@u0", "s1@u0", DOUBTS)]


def test_a_sentence_of_an_earlier_statement_decides_and_not_its_neighbours() -> None:
    new = _statement("s3", MOVED, days=9)
    one = _statement("s1", "Vera's cake was good. My dentist is Dr Vial! Nothing else today.")
    past = _statement("s2", "My dentist was born in Lyon. Vera's cake was good.")
    links = link_dependents([new], lambda: [new, past, one])
    assert [change.link.target for change in links] == ["s1@u0"]


def test_words_that_rest_on_an_area_do_not_look_around() -> None:
    patterns = [area.depends.pattern for area in dependents._rules().areas.values()]
    assert patterns
    assert not [pattern for pattern in patterns if re.search(r"\(\?[=!<]|[$^]", pattern)]


def test_what_became_doubtful_is_shown_as_said_before() -> None:
    new, dentist = _statement("s2", MOVED, days=9), _statement("s1", "My dentist in Lyon is Dr Vial.")
    units = {unit.id: unit for unit in (new, dentist)}
    updates = Updates([Link(new.id, dentist.id, DOUBTS)], units.__contains__)
    shown = updates.apply("Who is my dentist?", [[Hit(dentist, 0.9)]], lambda name: [units[name]], frozenset())
    assert [hit.unit.text for hits in shown for hit in hits] == [f"{dentist.text} {SAID_BEFORE}"]
    released = Updates([Link(new.id, dentist.id, DOUBTS)], {dentist.id}.__contains__)  # the change was put away
    (hits,) = released.apply("Who is my dentist?", [[Hit(dentist, 0.9)]], lambda name: [units[name]], frozenset())
    assert hits[0].unit == dentist


def test_a_name_stands_for_its_area() -> None:
    rufus, vet = _statement("s0", "My dog is called Rufus."), _statement("s1", "The vet is Dr Roe.")
    new = _statement("s2", "Rufus died at thirteen.", days=9)
    assert {change.link.target for change in link_dependents([new], lambda: [vet, rufus])} == {vet.id, rufus.id}
