"""Names that fill the same slot: which replace an earlier one, and which are another's or hold beside it."""

from datetime import timedelta

import pytest

from localmem.systems.evidence.superseding import find_replaced, read_sentence
from tests.fakes import START, session
from tests.systems.test_evidence import ask, memory, remember
from tests.systems.test_evidence_updates import likely

LIVES = "I live in Tacoma."


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (LIVES, "I live in Olympia now."),
        (LIVES, "These days we live in New York."),
        ("I live in Tacoma with my wife.", "Hi! We've moved to Leeds."),
        ("We live in a flat in Leeds.", "Moved to Bristol last week."),
        ("i live in tacoma", "i live in olympia now"),
        ("My sister lives in Leeds.", "My sister lives in York now."),
        ("Marcus lives in Denver.", "Marcus has moved to Boise."),
        ("My dentist is Dr. Lowe.", "My dentist is Dr. Patel now."),
        ("my dentist is dr lowe", "dr patel is my dentist now"),
        ("My manager is Tom.", "my new manager is Priya"),
        ("My physio is called Jamie.", "I have a new physio, Ruth."),
        ("I work at Atkins.", "I work at Arup these days."),
        ("i work for atkins", "i work for arup now"),
        ("I'm working at Tesco.", "I started a new job at Aldi."),
        ("We call the dog Rex.", "we call the dog Biscuit now"),
        ("I drive a Golf.", "I drive a Polo now."),
    ],
)
def test_another_name_in_the_same_slot_replaces(old: str, new: str) -> None:
    for same_session in (False, True):
        assert likely(new, old, 0.05, same_session=same_session) > 0.7


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I met Ben on Sunday.", "I met Ana on Saturday."),
        ("We have been to Paris.", "We have been to Rome now."),
        ("I live in York.", "My sister lives in Leeds now."),
        ("I live in York.", "He has moved to Leeds."),
        ("I live in York.", "My new boss lives in Leeds."),
        ("I live in York.", "We moved to Leeds when I was five."),
        ("I live in York.", "I live in Leeds during the week now."),
        ("I live in York.", "I moved to Octopus for the gas."),
        ("I live in York.", "We've moved to Zoom."),
        ("I live in York.", "i moved to group b"),
        ("I live in York.", "I might live in Leeds."),
        ("My daughter is called Ada.", "My son is called Ben."),
        ("Our dog is called Rex.", "Our new dog is called Biscuit."),
        ("My new dog is called Rex.", "My new dog is called Biscuit."),
        ("My novel is called Dust.", "My new novel is called Ash."),
        ("My teacher is Ms Hill.", "My new teacher is Mr Kay."),
        ("My dog is a Labrador.", "My dog is called Biscuit now."),
        ("My dentist is Dr Lowe.", "My doctor is Dr Patel now."),
        ("My manager is Tom.", "My sister's new manager is Priya."),
        ("My manager is Tom.", "My manager is Tom Reed now."),
        ("my manager is tom", "my manager is sick now"),
        ("I work at Atkins.", "I also work at Arup now."),
        ("I work at Atkins.", "I work at night now."),
        ("I live in York.", "Imagine I live in Leeds now."),
        ("I live in York.", "Should I live in Leeds now?"),
    ],
)
def test_what_is_another_s_or_holds_beside_it_replaces_nothing(old: str, new: str) -> None:
    assert likely(new, old, 0.35) < 0.7


@pytest.mark.parametrize("late", [False, True])
def test_where_somebody_lives_is_replaced_however_unlike_the_sentences_are(late: bool) -> None:
    old = session("I live in Tacoma with my wife. My cat Tom likes tuna.", "Noted.", name="s1")
    new = session("We've moved to Olympia with my dad.", "Noted.", name="s2", start=START + timedelta(days=9))
    system = remember(memory(), *((new, old) if late else (old, new)))
    assert [link.relation for link in system.bank.links] == ["supersedes:1"]
    text = ask(system, "Where do I live?").text
    assert "Olympia" in text
    assert "Tacoma" not in text


def test_of_a_sentence_only_the_slot_is_replaced() -> None:
    (passage,) = find_replaced("I live in Tacoma and my cat Tom likes tuna.", read_sentence("We've moved to Olympia."))
    assert passage == "I live in Tacoma"
