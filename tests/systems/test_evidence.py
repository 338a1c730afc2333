"""Evidence: what becomes a unit and when, and what a question is shown."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from localmem import factory
from localmem.config import load_settings
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.views import Indexes, ViewRetriever
from localmem.types import AddLink, Hit, Link, Recall, Session
from tests.fakes import START, WordEncoder, session

BICYCLE = session("I bought a red bicycle in Delft.", "It will suit the canals.", name="s1")
ASKED = ("What colour is my bicycle?", "I don't know that.")


class WordOverlap:
    """Scores a text by the share of the query's words that it holds."""

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        words = set(query.lower().strip("?").split())
        return [len(words & set(text.lower().split())) / len(words) for text in texts]


def memory(reranker: WordOverlap | None = None, **options: object) -> Memory:
    name = "words" if reranker else None
    settings = load_settings(flags={"system": "evidence", "options": {"reranker": name, "floor": 0.0} | options})
    parts = factory.Parts(
        ScriptedLLM(lambda _: ""),
        lambda: ViewRetriever(Indexes(DenseRetriever(WordEncoder()), BM25Retriever(), None)),
        load_reranker=lambda _: reranker or WordOverlap(),
    )
    return factory.memory(settings, parts)


def remember(system: Memory, *sessions: Session) -> Memory:
    for item in sessions:
        system.apply(system.end_session(item))
    return system


def live(system: Memory) -> Mapping[str, str]:
    return {unit.id: unit.text for unit in system.bank.live()}


def ask(system: Memory, question: str, days: int = 30) -> Recall:
    return system.recall(session(question, name="q", start=START + timedelta(days=days)))


def test_each_turn_is_a_unit_with_its_source() -> None:
    system = remember(memory(), BICYCLE)
    assert live(system) == {
        "s1.0@u0": "User: I bought a red bicycle in Delft.",
        "s1.0@a0": "Assistant: It will suit the canals.",
    }
    statement, reply = system.bank.live()
    assert statement.sources == ("s1.0",)
    assert reply.sources == ("s1.0", "s1.1")  # its key repeats the request, so erasing either erases it


def test_a_turn_is_known_as_soon_as_it_is_logged() -> None:
    system = memory()
    opened = Session("s1", BICYCLE.turns[:1])
    system.apply(system.observe_turn(opened))
    assert "red bicycle" in ask(system, "What colour is my bicycle?").text
    system.apply(system.observe_turn(BICYCLE, Recall()))
    once = live(system)
    assert system.end_session(BICYCLE) == []
    assert set(once) == {"s1.0@u0", "s1.0@a0"}


def test_the_dialogue_itself_is_not_recalled() -> None:
    system = memory()
    system.apply(system.observe_turn(Session("s1", BICYCLE.turns[:1])))
    assert system.recall(Session("s1", BICYCLE.turns[:1])).hits == ()


def test_asking_and_denying_leave_no_unit() -> None:
    system = remember(memory(), BICYCLE)
    before = live(system)
    for day in range(1, 6):
        remember(system, session(*ASKED, name=f"asked{day}", start=START + timedelta(days=day)))
    assert live(system) == before
    assert ask(system, ASKED[0]).hits[0].unit.id == "s1.0@u0"


def test_a_reply_that_repeats_a_memory_is_not_learned_again() -> None:
    system = remember(memory(), BICYCLE)
    repeated = session("What colour is my bicycle?", "You bought a red bicycle in Delft.", name="s2")
    hits = tuple(Hit(unit, 1.0) for unit in system.bank.live())
    assert system.observe_turn(repeated, Recall(hits=hits)) == []
    assert system.end_session(repeated) == []  # nor from an imported log, where it is looked up


def test_a_reply_that_says_something_is_remembered_with_its_question() -> None:
    named = session("What would be a funny name?", "Standing Room Only would do.", name="s1")
    system = remember(memory(), named)
    assert list(live(system)) == ["s1.0@a0"]
    assert "Standing Room Only" in ask(system, "Which funny name did you suggest?").text


def test_a_long_message_is_shown_a_passage_at_a_time() -> None:
    pages = "\n\n".join(f"Chapter {number} is about subject{number}. " + "Filler words. " * 60 for number in range(9))
    system = remember(memory(), session(f"I wrote this book.\n\n{pages}", "Thank you.", name="s1"))
    assert all(len(unit.key) <= 1200 for unit in system.bank.live())
    recall = ask(system, "What is subject7 about in my book?")
    assert "Chapter 7" in recall.text
    assert "(part " in recall.text
    assert "Chapter 2" not in recall.text


def test_what_is_shown_fits_the_budget_and_stands_in_the_order_of_time() -> None:
    told = [
        session(f"My cat number {n} is called Tom{n}.", "Nice.", name=f"s{n}", start=START + timedelta(days=n))
        for n in range(9)
    ]
    system = remember(memory(tokens=60), *told)
    hits = ask(system, "What is my cat called?").hits
    assert 1 < len(hits) < 9
    assert [hit.unit.time for hit in hits] == sorted(hit.unit.time for hit in hits)


def test_turns_of_one_moment_stand_in_the_order_they_were_said() -> None:
    texts = [
        text for n in range(12) for text in (f"Step {n}: the bread needs flour and step {n}.", f"Reply {n} to flour.")
    ]
    system = remember(memory(), session(*texts, name="s1"))
    sources = [
        int(hit.unit.sources[-1].partition(".")[2]) for hit in ask(system, "the flour of the bread, step 7?").hits
    ]
    assert len(sources) > 3
    assert sources == sorted(sources)


def test_the_reranker_orders_and_the_floor_hides() -> None:
    other = session("My sister rides a bicycle to Utrecht.", "How far?", name="s2", start=START + timedelta(days=1))
    system = remember(memory(WordOverlap(), floor=0.3), BICYCLE, other)
    assert system.search("my red bicycle", 5)[0].unit.session == "s1"
    assert ask(system, "How much is twelve times seven?").hits == ()


@pytest.mark.parametrize(("question", "shows_old"), [("Where do I live?", False), ("Where did I use to live?", True)])
def test_a_replaced_statement_is_shown_when_the_past_is_asked_for(question: str, shows_old: bool) -> None:
    old = session("I live in Paris.", "Nice.", name="s1")
    new = session("I live in Lyon now.", "Nice.", name="s2", start=START + timedelta(days=5))
    system = remember(memory(), old, new)
    system.apply([AddLink(Link("s2.0@u0", "s1.0@u0", "supersedes"), START)])
    text = ask(system, question).text
    assert "Lyon" in text
    assert ("Paris" in text) is shows_old


def test_a_short_question_is_searched_with_the_one_before_it() -> None:
    system = remember(memory(), BICYCLE)
    dialogue = session(
        "Which bicycle did I buy?", "A red one.", "And where?", name="q", start=START + timedelta(days=9)
    )
    assert "Delft" in system.recall(dialogue).text
