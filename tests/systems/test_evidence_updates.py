"""What replaces what: the model of sentence pairs, the links it leads to, and what is shown of them."""

from datetime import timedelta

import pytest

from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.views import Indexes, ViewRetriever
from localmem.systems.evidence.superseding import describe, find_replaced, nearness, probability, read_sentence
from localmem.types import AddLink, Hide, Link, Session
from tests.fakes import START, WordEncoder, session, unit
from tests.systems.test_evidence import ask, memory, remember

DENTIST = "The dentist is on Tuesday the 3rd of May at noon."
MOVED = "The dentist moved me to Thursday the 5th of May now."
TOLD = session(f"{DENTIST} My cat Tom likes tuna.", "Noted.", name="s1")
UPDATED = session(f"{MOVED} It rained.", "Noted.", name="s2", start=START + timedelta(days=9))
PAST = "When was the dentist originally?"


def likely(new: str, old: str, near: float = 0.5, *, same_session: bool = False) -> float:
    features = describe(read_sentence(new), read_sentence(old), near, timedelta(days=9), same_session=same_session)
    return probability(features)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (MOVED, DENTIST),
        ("My rent went up to 1,450 now, from 1,300.", "My rent is 1,300 a month."),
        ("Der Zahnarzt ist jetzt auf Donnerstag verschoben.", "Der Zahnarzt ist am Dienstag."),
        ("Le loyer est maintenant de 820 euros.", "Le loyer est de 750 euros."),
        ("牙医改到星期四 5 月 6 日了。", "牙医约在星期二 5 月 3 日。"),
    ],
)
def test_a_change_of_value_in_a_like_sentence_replaces(new: str, old: str) -> None:
    assert likely(new, old) > 0.7


@pytest.mark.parametrize(
    ("new", "old", "near"),
    [
        ("My sister's flat costs 900.", "My rent is 1,300 a month.", 0.2),
        ("The dentist was kind.", DENTIST, 0.5),  # no change and no value
        (MOVED, "My cat Tom likes tuna.", 0.1),
    ],
)
def test_another_matter_replaces_nothing(new: str, old: str, near: float) -> None:
    assert likely(new, old, near) < 0.5


def test_nearness_is_beyond_that_of_chance_matches() -> None:
    assert nearness([0.8, 0.7, 0.6, *[0.3] * 10])[:2] == pytest.approx([0.5, 0.4])
    assert nearness([0.8, 0.4]) == pytest.approx([0.6, 0.2])  # too few to tell what chance is
    assert nearness([]) == []


def test_sentences_are_found_by_unit_and_number() -> None:
    index = ViewRetriever(Indexes(DenseRetriever(WordEncoder()), None, None))
    index.add([unit("s.0@u0", f"User: My cat Tom likes tuna. {DENTIST}", key="other words")])
    ((match, *_),) = index.search_sentences([DENTIST], 5)
    assert (match.unit, match.number) == ("s.0@u0", 2)
    assert ViewRetriever(Indexes(None, None, None)).search_sentences(["cat"], 5) == [[]]
    assert 0 not in {row.number for row in index.search_sentences(["other words"], 9)[0]}  # the key is no sentence


def test_a_sentence_that_was_replaced_is_cut_and_the_rest_of_its_turn_shown() -> None:
    system = remember(memory(), TOLD, UPDATED)
    (link,) = system.bank.links
    assert (link.source, link.target, link.relation) == ("s2.0@u0", "s1.0@u0", "supersedes:1")
    text = ask(system, "When is the dentist, on which day?").text
    assert "Thursday" in text
    assert "Tuesday" not in text
    assert "[…] My cat Tom likes tuna." in ask(system, "What does my cat Tom like?").text


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        (
            "My rent is 620 a month and the landlord is Mr Khan.",
            "My rent is now 650.",
            "[…] and the landlord is Mr Khan.",
        ),
        ("I take metformin 500 and ramipril.", "metformin is 1000 now", "[…] and ramipril."),
        ("Bowls is on Tuesdays, my partner is Alf.", "Bowls has moved to Wednesdays", "[…] my partner is Alf."),
        ("The party is on 3 June and it starts at noon.", "The party moved to 5 June", "[…]"),
        ("I go on Mondays and Fridays.", "I go on Tuesdays now", "[…]"),
        ("Ruth has the key and Ben the map.", "Olga has the key now", "[…]"),  # no value tells what has changed
    ],
)
def test_of_a_sentence_only_what_the_new_one_speaks_of_is_replaced(old: str, new: str, shown: str) -> None:
    for passage in find_replaced(old, read_sentence(new)):
        old = old.replace(passage, "[…]")
    assert old == shown


def test_an_update_to_half_a_sentence_leaves_the_other_half() -> None:
    old = session(f"{DENTIST[:-1]} and my cat Tom likes tuna.", "Tuesday the 3rd at noon, so eat early.", name="s1")
    system = remember(memory(), old, UPDATED)
    assert [link.relation for link in system.bank.links] == ["supersedes:1"]
    text = ask(system, "What does my cat Tom like? And the dentist?").text
    assert "[…] and my cat Tom likes tuna." in text
    assert "Thursday" in text
    assert "Tuesday" not in text  # nor the reply


def test_what_was_is_shown_when_the_past_is_asked_for() -> None:
    system = remember(memory(), TOLD, UPDATED)
    text = ask(system, PAST).text
    assert "Tuesday the 3rd" in text
    assert "Thursday the 5th" in text


def test_an_update_is_linked_as_soon_as_it_is_told() -> None:
    system = remember(memory(), TOLD)
    changes = system.observe_turn(Session("s2", UPDATED.turns[:1]))
    assert [change.link.relation for change in changes if isinstance(change, AddLink)] == ["supersedes:1"]
    assert not any(isinstance(change, AddLink) for change in system.observe_turn(UPDATED))  # the reply replaces nothing


def test_an_older_session_that_is_imported_later_is_replaced_all_the_same() -> None:
    assert remember(memory(), UPDATED, TOLD).bank.links == remember(memory(), TOLD, UPDATED).bank.links


def test_a_threshold_of_one_links_nothing() -> None:
    assert remember(memory(supersede=1.0), TOLD, UPDATED).bank.links == ()


def test_the_newer_statement_is_brought_in_where_only_the_older_matches() -> None:
    old = session("I keep the spare key at my aunt Olga's.", "Fine.", name="s1")
    new = session("It went to Piet instead.", "Fine.", name="s2", start=START + timedelta(days=5))
    newest = session("Then it went home.", "Fine.", name="s3", start=START + timedelta(days=6))
    system = remember(memory(candidates=1), old, new, newest)
    question = "Who keeps the spare key?"
    assert {hit.unit.session for hit in ask(system, question).hits} == {"s1"}
    system.apply([AddLink(Link("s2.0@u0", "s1.0@u0", "supersedes"), START)])
    assert {hit.unit.session for hit in ask(system, question).hits} == {"s2"}
    system.apply([AddLink(Link("s3.0@u0", "s2.0@u0", "supersedes"), START)])
    assert {hit.unit.session for hit in ask(system, question).hits} == {"s3"}


def test_a_link_to_a_sentence_that_is_no_longer_there_is_ignored() -> None:
    system = remember(memory(), session("I keep the spare key at Olga's.", name="s1"), UPDATED)
    system.apply([AddLink(Link("s2.0@u0", "s1.0@u0", "supersedes:2"), START)])
    assert "Olga" in ask(system, "Who keeps the spare key?").text


def test_a_replacement_that_was_put_away_replaces_nothing() -> None:
    system = remember(memory(), TOLD, UPDATED)
    system.apply([Hide("s2.0", "s3.0", START)])
    assert "Tuesday" in ask(system, "When is the dentist, on which day?").text


@pytest.mark.parametrize(
    ("correction", "relation"),
    [
        ("No wait, the dentist is on Thursday the 5th of May.", "supersedes:1"),
        ("Sorry, I meant Thursday.", "corrects"),
        ("Make that noon.", "corrects"),
        ("Thursday suits me better for the market.", None),
    ],
)
def test_a_correction_in_the_next_turn_counts_at_once(correction: str, relation: str | None) -> None:
    talk = session(f"{DENTIST} My cat Tom likes tuna.", "Noted.", correction, name="s1")
    system = remember(memory(), Session("s1", talk.turns[:2]))
    system.apply(system.observe_turn(talk))
    assert [link.relation for link in system.bank.links] == ([relation] if relation else [])


def test_a_correction_that_names_nothing_is_shown_beside_what_it_corrects() -> None:
    system = remember(
        memory(candidates=1),
        session("The dentist is on Tuesday at noon.", "Noted.", "Sorry, I meant Thursday.", name="s1"),
    )
    recall = ask(system, "When is the dentist, at noon?")
    assert recall.text.index("Tuesday") < recall.text.index("Thursday")
    corrections = [(hit.unit.id, hit.corrected_by) for hit in recall.hits]
    assert corrections == [("s1.0@u0", "s1.2@u0"), ("s1.2@u0", "")]
