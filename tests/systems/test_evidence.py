"""Evidence: what becomes a unit and when, and what a question is shown."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from localmem import factory
from localmem.config import load_settings
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.retrieval.bm25 import BM25Retriever
from localmem.retrieval.dense import DenseRetriever
from localmem.retrieval.views import Indexes, ViewRetriever
from localmem.systems.evidence.evidence_memory import search_text
from localmem.text.dialogue import IN_SIGHT
from localmem.text.passages import estimate_tokens
from localmem.turns.readings import CLOSEST, NOT_KNOWN
from localmem.types import AddLink, AddUnit, Hide, Hit, Link, Recall, Session, Turn
from tests.fakes import START, WordEncoder, session

BICYCLE_SAID = ("I bought a red bicycle in Delft.", "It will suit the canals.")
BICYCLE = session(*BICYCLE_SAID, name="s1")
ASKED = ("What colour is my bicycle?", "I don't know that.")


class WordOverlap:
    """Scores a text by the share of the query's words that it holds."""

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        words = set(query.lower().strip("?").split())
        return [len(words & set(text.lower().split())) / len(words) for text in texts]


def memory(reranker: WordOverlap | None = None, *, day_first: bool | None = None, **options: object) -> Memory:
    name = "words" if reranker else None
    settings = load_settings(flags={"system": "evidence", "options": {"reranker": name, "floor": 0.0} | options})
    parts = factory.Parts(
        ScriptedLLM(lambda _: ""),
        lambda: ViewRetriever(Indexes(DenseRetriever(WordEncoder()), BM25Retriever(), None)),
        day_first=day_first,
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


@pytest.mark.parametrize(("turns", "recalled"), [(IN_SIGHT, ["s1.0@u0", "s1.0@a0"]), (IN_SIGHT - 2, [])])
def test_of_the_dialogue_only_what_is_out_of_sight_is_recalled(turns: int, recalled: list[str]) -> None:
    others = [f"Row number {number} is planted." for number in range(turns)]
    dialogue = session(*BICYCLE_SAID, *others, "What colour is my bicycle?", name="s1")
    system = remember(memory(), Session("s1", dialogue.turns[:-1]))
    assert [hit.unit.id for hit in system.recall(dialogue).hits] == recalled


def test_what_was_edited_is_recalled_in_its_own_dialogue() -> None:
    talk = session("I bought a red bicycle in Delft.", "Fine.", "What colour is my bicycle?", name="s1")
    system = memory()
    system.apply(system.observe_turn(Session("s1", talk.turns[:1])))
    edited = replace(system.bank.units["s1.0@u0"], id="edit-1@u0", text="User: I bought a blue bicycle in Delft.")
    system.apply([AddUnit(edited, START), Hide("s1.0@u0", edited.id, START)])
    assert [hit.unit.id for hit in system.recall(talk).hits] == [edited.id]


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


@pytest.mark.parametrize(
    "reply",
    [
        'On 3 May 2025 you said: "My pin for the shed is 4471."',
        f'{NOT_KNOWN} {CLOSEST} on 3 May 2025 I noted: "My pin for the shed is 4471."',
        '"3 May" is Saturday 3 May 2025.\nYou first said: "The shed opens on 3 May (3 May 2025)."',
    ],
)
def test_a_reply_of_the_reader_is_not_learned(reply: str) -> None:
    talk = session("Shed key stuff, where do I put it all.", reply, name="s1")
    system = memory()
    assert system.observe_turn(talk) == []
    assert "s1.0@a0" not in live(remember(system, talk))


def test_a_reply_that_opens_a_session_is_remembered() -> None:
    turn = Turn("s1.0", "assistant", "Assistant", "For a romantic dinner, try Roscioli in Rome.", START)
    system = remember(memory(), Session("s1", (turn,)))
    assert list(live(system)) == ["s1.0@a0"]


def test_a_long_message_is_shown_a_passage_at_a_time() -> None:
    pages = "\n\n".join(f"Chapter {number} is about subject{number}. " + "Filler words. " * 60 for number in range(9))
    system = remember(memory(), session(f"I wrote this book.\n\n{pages}", "Thank you.", name="s1"))
    assert all(len(unit.key) <= 1200 for unit in system.bank.live())
    recall = ask(system, "What is subject7 about in my book?")
    assert "Chapter 7" in recall.text
    assert "(part " in recall.text
    assert "Chapter 2" not in recall.text


def test_any_passage_of_a_shown_text_fits_its_share_of_a_recall() -> None:
    lease = " ".join(f"Clause {number} of this lease binds both sides. " + "It holds. " * 30 for number in range(9))
    system = remember(memory(), session(f"Summarise this contract:\n\n{lease} The deposit is 2350.", "Ok.", name="s1"))
    assert "The deposit is 2350." in ask(system, "How much is the deposit of my contract?").text


def test_times_are_resolved_as_they_are_learned_and_shown_with_their_words() -> None:
    texts = ("The fair is in April.", "How nice!", "We open it on the 9th. Tomorrow I paint the stall.")
    opened = session(*texts, name="s1", start=START + timedelta(days=10))
    by_turn, at_end = memory(), remember(memory(), opened)
    for end in range(1, 4):
        by_turn.apply(by_turn.observe_turn(Session("s1", opened.turns[:end])))
    for system in (by_turn, at_end):
        unit = system.bank.units["s1.2@u0"]
        assert unit.text == f"User: {texts[2]}"  # verbatim
        assert [str(span.readings[0].first) for span in unit.spans or ()] == ["2026-04-09", "2026-03-13"]
        text = ask(system, "When do we open the stall?").text
        assert "We open it on the 9th (9 April 2026). Tomorrow (13 March 2026) I paint the stall." in text


def test_what_has_ended_is_shown_as_past() -> None:
    system = remember(memory(), session("My cast comes off on the 12th of March.", name="s1"))
    question = "When does my cast come off?"
    assert "on the 12th of March (12 March 2026)." in ask(system, question, days=5).text
    assert "on the 12th of March (12 March 2026, already past)." in ask(system, question, days=30).text


def test_dates_behind_times_are_an_option_and_count_in_the_budget() -> None:
    past = session("Tomorrow I paint the stall, and today I rest.", name="s1")
    plain = ask(remember(memory(show_times=False), past), "Who paints the stall?").text
    assert plain == "2 March 2026: User: Tomorrow I paint the stall, and today I rest."
    size = estimate_tokens(plain)
    assert ask(remember(memory(show_times=False, tokens=size), past), "Who paints the stall?").text == plain
    assert ask(remember(memory(tokens=size), past), "Who paints the stall?").text == ""


def test_an_impossible_date_is_remembered_as_it_was_said() -> None:
    system = remember(memory(), session("The stall opens on 31 February.", name="s1"))
    assert system.bank.units["s1.0@u0"].spans == ()
    assert ask(system, "When does the stall open?").text == "2 March 2026: User: The stall opens on 31 February."


@pytest.mark.parametrize("day_first, expected", [(True, ["2026-11-09"]), (False, ["2026-09-11"]), (None, None)])
def test_the_order_of_day_and_month_is_the_users(day_first: bool | None, expected: list[str] | None) -> None:
    system = remember(memory(day_first=day_first), session("The stall opens on 9/11/26.", name="s1"))
    (span,) = system.bank.units["s1.0@u0"].spans or ()
    firsts = [str(reading.first) for reading in span.readings]
    assert firsts == expected if expected else sorted(firsts) == ["2026-09-11", "2026-11-09"]


def test_two_zones_in_one_log_give_each_turn_its_own_day() -> None:
    midnight = datetime(2026, 3, 2, 23, 30, tzinfo=UTC)
    texts = ("I paint the stall tomorrow.", "And I sell the stall tomorrow.")
    zones = (UTC, timezone(timedelta(hours=9)))
    turns = tuple(
        Turn(f"s1.{number}", "user", "User", text, midnight.astimezone(zone))
        for number, (text, zone) in enumerate(zip(texts, zones, strict=True))
    )
    system = remember(memory(), Session("s1", turns))
    days = [span.readings[0].first.day for unit in system.bank.live() for span in unit.spans or ()]
    assert days == [3, 4]


def test_what_is_shown_fits_the_budget_and_stands_in_the_order_of_time() -> None:
    sessions = [
        session(f"My cat number {n} is called Tom{n}.", "Nice.", name=f"s{n}", start=START + timedelta(days=n))
        for n in range(9)
    ]
    system = remember(memory(tokens=60), *sessions)
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


def test_nothing_is_recalled_for_a_greeting() -> None:
    system = remember(memory(), BICYCLE)
    assert ask(system, "What colour is my bicycle?").hits
    assert ask(system, "hello there, thanks!").hits == ()


def test_the_reranker_orders_and_the_floor_hides() -> None:
    other = session("My sister rides a bicycle to Utrecht.", "How far?", name="s2", start=START + timedelta(days=1))
    system = remember(memory(WordOverlap(), floor=0.3), BICYCLE, other)
    assert system.search("my red bicycle", 5)[0].unit.session == "s1"
    assert ask(system, "What is 12 times 7?").hits == ()


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


@pytest.mark.parametrize(
    ("question", "is_whole"),
    [("Who's my boss?", True), ("wots my reg", True), ("and my mum?", False), ("how much?", False)],
)
def test_one_that_says_what_it_is_about_is_searched_alone(question: str, is_whole: bool) -> None:
    searched = search_text(session("Which bicycle did I buy?", "A red one.", question, name="q"))
    assert searched == (question if is_whole else f"Which bicycle did I buy?\n{question}")


def test_replies_are_shown_far_down_the_ranking_to_who_asks_for_them() -> None:
    places = ("Lyon in spring", "Porto by train", "Gent with children", "Kiel on a boat", "Graz for skiing")
    talks = [session(f"A trip to {place} tempts me.", f"Rule: pack {place[-4:]}.", name=place[:4]) for place in places]
    system = remember(memory(), *talks)
    assert ask(system, "Which trip tempts me?").text.count("Rule") == 1
    replies = sum("Rule" in text for text in live(system).values())
    assert ask(system, "Which trip of mine did you like?").text.count("Rule") == replies > 2


def test_a_quotation_of_this_session_with_its_day_is_not_learned_again() -> None:
    system = memory()
    quotation = 'On 2 March 2026 you said: "My knee operation is a week on Friday (13 March 2026)."'
    dialogue = session("My knee operation is a week on Friday.", "Good luck with it.", "When is it?", quotation)
    for end in range(1, 5):
        system.apply(system.observe_turn(Session(dialogue.id, dialogue.turns[:end])))
    assert quotation not in "".join(live(system).values())
