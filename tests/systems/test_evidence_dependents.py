"""What an announcement change makes doubtful, and what it leaves alone."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from localmem.files import read_yaml
from localmem.retrieval.views import index_texts
from localmem.systems.evidence.announcements import read_announced_change, read_rules
from localmem.systems.evidence.dependents import DOUBTS, SAID_BEFORE, link_dependents, rests_on
from localmem.systems.evidence.updates import Updates, without_doubtful
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
        ("My daughter changed schools.", "My daughter is in class 4b with Mrs Pohl."),
        ("My friend Zoe got divorced.", "Zoe's wedding was in Kinsale."),
        ("My wife crashed our car.", "Our car is a Skoda."),
        ("My husband and I got divorced.", "Our wedding anniversary is 12 October."),
        ("Mr Saif left for the Gulf.", "Mr Saif runs the workshop."),
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
        ("My daughter has started a new job at Tesco.", "My boss is called Anne."),
        ("My husband has a new job, I'm so proud.", "My boss is called Anne."),
        ("My friend Zoe got divorced.", "Our wedding anniversary is 12 October."),
        ("My brother crashed the car.", "Our car is a Skoda."),
        ("Tom and I broke up.", "They said they'd ring by Friday."),
        ("The course finished in ten days.", "I get up at ten."),
        ("The exams finished after 38 years.", "We've been married 51 years come October 12th."),
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
        "There's a hearing aid in the left drawer.",
        "I'm having the cataract operation on the left eye.",
        "There's a bakery on the left.",
        "There are two biscuits left in the tin.",
        "There are two biscuits left.",
        "I've got an interview for a job at the eye hospital.",
        "It was 38 years until I retired.",
        "Paul has gone home now.",
        "Tom has left for school.",
        "Gran has gone shopping.",
        "I dropped the kids off.",
        "I'm looking for a new job.",
        "The bus was cancelled this morning.",
        "The library is shut on Mondays.",
        "my phone is dead",
        "The kitchen is finished.",
    ],
)
def test_most_sentences_change_nothing(text: str) -> None:
    assert read_announced_change(text) is None


def test_only_earlier_statements_of_the_user_are_linked() -> None:
    new = _statement("s2", MOVED, days=9)
    dentist, later = _statement("s1", "My dentist in Lyon is Dr Vial."), _statement("s3", "My gym is in Lyon.", days=20)
    pasted = _statement("s0", "Lyon is our city.", kind="document")
    links = link_dependents([new], lambda: [later, new, dentist, pasted])
    assert [change.link for change in links] == [Link("s2@u0", "s1@u0", f"{DOUBTS}:1")]


def test_a_sentence_of_an_earlier_statement_decides_and_not_its_neighbours() -> None:
    new = _statement("s3", MOVED, days=9)
    statement = _statement("s1", "Vera's cake was good. My dentist is Dr Vial! Nothing else today.")
    past = _statement("s2", "My dentist was born in Lyon. Vera's cake was good.")
    links = link_dependents([new], lambda: [new, past, statement])
    assert [change.link for change in links] == [Link("s3@u0", "s1@u0", f"{DOUBTS}:2")]


def test_words_that_rest_on_an_area_do_not_look_around() -> None:
    patterns = [area.depends.pattern for area in read_rules().areas.values()]
    assert patterns
    assert not [pattern for pattern in patterns if re.search(r"\(\?[=!<]|[$^]", pattern)]


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("My dentist in Lyon is Dr. Vial.", f"My dentist in Lyon is Dr. Vial {SAID_BEFORE}."),
        ("My dentist is in Lyon! I like tea.", f"My dentist is in Lyon {SAID_BEFORE}! I like tea."),
        ("My gp: Roe", f"My gp: Roe {SAID_BEFORE}"),
    ],
)
def test_the_sentence_that_became_doubtful_is_shown_as_said_before(text: str, marked: str) -> None:
    new, old = _statement("s2", MOVED, days=9), _statement("s1", text)
    units = {unit.id: unit for unit in (new, old)}
    links = [change.link for change in link_dependents([new], lambda: [new, old])]
    updates = Updates(links, units.get)
    (hits,) = updates.apply("Who is my dentist?", [[Hit(old, 0.9)]], lambda name: [units[name]], frozenset())
    assert [hit.unit.text for hit in hits] == [f"User: {marked}"]
    released = Updates(links, {old.id: old}.get)  # the change was put away
    (hits,) = released.apply("Who is my dentist?", [[Hit(old, 0.9)]], lambda name: [units[name]], frozenset())
    assert hits[0].unit == old


@pytest.mark.parametrize(
    ("text", "firm"),
    [
        ("I like tea. My dentist is in Lyon {}! The bill came on 3 May.", "I like tea. […] The bill came on 3 May."),
        ("My dentist is in Lyon {}. It costs 90. I pay 40 for tea.", "[…] […] I pay 40 for tea."),
        ("I like tea. He is ill.", "I like tea. He is ill."),
        ("My dentist in Lyon is Dr. Vial {}.", None),
        ("Gym at 7. Ok {}.", None),
    ],
)
def test_what_is_doubtful_is_left_out_with_what_refers_to_it(text: str, firm: str | None) -> None:
    unit = without_doubtful(_statement("s1", text.format(SAID_BEFORE)))
    assert (unit and unit.text.removeprefix("User: ")) == firm


def test_a_name_stands_for_its_area() -> None:
    rufus, vet = _statement("s0", "My dog is called Rufus."), _statement("s1", "The vet is Dr Roe.")
    new = _statement("s2", "Rufus died at thirteen.", days=9)
    assert {change.link.target for change in link_dependents([new], lambda: [vet, rufus])} == {vet.id, rufus.id}


def test_who_is_named_with_others_or_beside_something_else_does_not_make_that_doubtful() -> None:
    """And nothing is taken for an area that is told only elsewhere in a sentence that names what ended."""
    first = _statement("s0", "I'm Margaret, I live in Thornbury with my husband Gerald and our dog Pippin.")
    joan, vet = _statement("s1", "Joan next door is selling her house."), _statement("s2", "The vet is Dr Roe.")
    new = _statement("s3", "Pippin died on Friday.", days=9)
    assert [change.link.target for change in link_dependents([new], lambda: [vet, joan, first])] == [vet.id]


def _marks(case: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """The sentences that are marked and those that should be."""
    earlier = [_statement(f"s{number}", text, days=number) for number, text in enumerate(case["said"])]
    sentences = {(unit.id, number): text for unit in earlier for number, text in enumerate(index_texts(unit)) if number}
    new = _statement("new", case["then"], days=30)
    links = [change.link for change in link_dependents([new], lambda: [new, *reversed(earlier)])]
    marked = {sentences[link.target, int(link.relation.partition(":")[2])] for link in links}
    return marked, {text for text in sentences.values() if any(part in text for part in case["marked"])}


@pytest.mark.parametrize(("half", "missed", "needless"), [("seen", 1, 2), ("unseen", 1, 4)])
def test_few_marks_are_missed_and_fewer_are_needless(half: str, missed: int, needless: int) -> None:
    table: dict[str, Any] = dict(read_yaml(Path(__file__).with_name("dependents.yaml")))
    cases = [_marks(case) for case in table[half]]
    assert sum(len(expected) for _, expected in cases) == 28
    assert sum(len(expected - marked) for marked, expected in cases) <= missed
    assert sum(len(marked - expected) for marked, expected in cases) <= needless
