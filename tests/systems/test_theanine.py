"""Theanine: the paper's own examples, and sessions of every kind.

The examples follow the structure of the paper's Figures 16 to 20, with sentences of our own.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.errors import BadReply
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.theanine.link import OTHER, RELATIONS
from localmem.types import AddUnit, Change, Choice, Link, Prompt, Session, SetNote, Turn
from tests.fakes import START, session, turns, unit
from tests.systems.theanine_script import TheanineScript, days, links_of, live, make, text_of

__all__ = ["make"]

# Figures 16 to 18: an older event and its dialogue, a newer event and its dialogue, and the relation between them.
LINKING = [
    pytest.param(
        "Changed",
        ("Ida doubted Tom's idea of opening a stall.", "Nice of you, but a stall of my own? I doubt it."),
        ("Ida opened the stall and her customers like it.", "I was scared, yet people love what I sell at the stall."),
        id="figure 16, example 1",
    ),
    pytest.param(
        "Cause",
        ("Nora finds it unjust to walk the dog because her father is tired.", "Why me? The dog is yours too."),
        ("Nora's father admits he was lazy and will walk the dog.", "I was lazy about the dog. I will do my walks."),
        id="figure 16, example 2",
    ),
    pytest.param(
        "Reason",
        ("Lea's brother lives in Oslo with a Norwegian wife.", "He married a Norwegian. I see them in Oslo in May."),
        ("Lea wants to learn Norwegian before her trip to Oslo.", "I had better start on my Norwegian before Oslo."),
        id="figure 16, example 3",
    ),
    pytest.param(
        "HinderedBy",
        ("Sam is in the middle of a long novel about whales.", "That whale novel again, my favourite as a boy."),
        ("Sam is building a boat and finds no time for his novel.", "The boat takes all evenings, no novel for me."),
        id="figure 17, example 4",
    ),
    pytest.param(
        "React",
        ("Eva hopes that more people will speak up for the river.", "We need more voices for the river."),
        ("Mr Holm is proud of Eva's work for the river.", "What you have done for the river will serve you well."),
        id="figure 17, example 5",
    ),
    pytest.param(
        "Want",
        ("Max and Ann hardly know each other and mean to meet.", "We live side by side. Shall we have tea on Sundays?"),
        ("Max likes Ann's kitchen and wants to meet more often.", "It is so warm in your kitchen. Can I come again?"),
        id="figure 18, example 6",
    ),
    pytest.param(
        "SameTopic",
        ("Kim reads thrillers while Jo reads sagas.", "Thrillers for me, you have your sagas."),
        ("Jo rereads two sagas and draws ideas from long walks.", "I am at the second saga. Walks give me ideas."),
        id="figure 18, example 7",
    ),
]  # fmt: skip


@pytest.mark.parametrize("relation, old, new", LINKING)
def test_two_events_are_linked_by_their_relation(relation: str, old: tuple[str, str], new: tuple[str, str]) -> None:
    (older, older_dialogue), (newer, newer_dialogue) = old, new
    script = TheanineScript({older_dialogue: [older], newer_dialogue: [newer]}, {(older, newer): relation})
    memory = make(llm=ScriptedLLM(script))
    changes = live(
        memory,
        session(older_dialogue, older, name="s1"),
        session(newer, newer_dialogue, name="s2", start=days(1)),
    )
    assert links_of(changes) == [Link("s1/m0", "s2/m0", relation, 1.0)]
    prompts = script.prompts_of("theanine/link")
    # Relations one to six first; only where none of them holds, SameTopic or none at all (Figure 22).
    assert [prompt.format for prompt in prompts] == [
        Choice((*RELATIONS, OTHER)),
        *([Choice(("SameTopic", "None"))] if relation == "SameTopic" else []),
    ]
    for text in (older, newer, older_dialogue, newer_dialogue, "Event A, 2 March 2026", "Event B, 9 March 2026"):
        assert text in text_of(prompts[0])
    raw = make(memory.bank, relations=True, refine=False).recall(session(older_dialogue, name="s3", start=days(2)))
    assert raw.text == f"2 March 2026: {older}\n- ({relation}) 9 March 2026: {newer}"


# Figure 19: a timeline, the dialogue, the timeline rewritten for it.
REFINING = [
    pytest.param(
        ["Mia fancies her neighbour Ben.", "Paula tells Mia to talk to Ben.", "Paula longs for a thrill of her own."],
        ["React", "Want"],
        "And how is it with you and Ben?",
        "Mia fancied Ben, and Paula told her to talk to him. It makes Paula long for a thrill.",
        id="example 1",
    ),
    pytest.param(
        ["The trainer praises lentils.", "The runner eats lentils now and recovers faster."],
        ["SameTopic"],
        "Are you still eating those lentils?",
        "On the trainer's praise the runner eats lentils and recovers faster.",
        id="example 2",
    ),
    pytest.param(
        ["Leo will ask Ruth on the pier.", "Leo will rather ask Ruth at the fair.", "Leo has a ring made for Ruth."],
        ["Changed", "SameTopic"],
        "I have paid for the ring!",
        "Leo first meant to ask Ruth on the pier, now at the fair, and has a ring made.",
        id="example 3",
    ),
]  # fmt: skip


@pytest.mark.parametrize("events, relations, query, refined", REFINING)
def test_a_timeline_is_rewritten_for_the_dialogue_and_shown_to_the_reply(
    events: list[str], relations: list[str], query: str, refined: str
) -> None:
    steps = dict(zip(pairwise(events), relations, strict=True))
    script = TheanineScript({f"part {n}": [event] for n, event in enumerate(events)}, steps, refined)
    llm = ScriptedLLM(script)
    memory = make(llm=llm)
    live(memory, *(session(f"part {n}", event, name=f"s{n}", start=days(n)) for n, event in enumerate(events)))
    agent = Conversation(memory=memory, llm=llm)
    now = session(query, name="now", start=days(9))
    reply = agent.responder.answer(now)
    assert reply.recall.text == refined
    assert [hit.unit.text for hit in reply.recall.hits] == events
    (prompt,) = script.prompts_of("theanine/refine")  # the three hits draw one and the same timeline
    timeline = prompt.messages[-1].content.split("Timeline:\n")[1].split("\n\nText:")[0]
    for line, event, relation in zip(timeline.split("\n"), events, [None, *relations], strict=True):
        assert line.endswith(f": {event}")
        assert line.startswith(f"- ({relation}) " if relation else "2 March 2026")
    assert f"Current dialogue:\nUser: {query}\n" in prompt.messages[-1].content
    assert prompt.temperature == 0
    assert refined in reply.prompt.messages[-1].content
    assert reply.prompt.name == "theanine/respond"
    assert reply.prompt.temperature == 0.75


def test_a_memory_that_was_not_found_comes_along_its_timeline() -> None:
    """Figure 20: the dialogue is mostly about grandchildren, so the search finds those; what the question is about
    (the profession that was given up) stands between a unit that was found and one that was not."""
    events = {
        "p0": "Olga minds her grandchildren all day.",
        "p1": "Olga's aunt was a nurse and formed how she sees nursing.",
        "p2": "Ute has given up being a nurse.",
        "p3": "Ute reads to children in the ward.",
    }
    steps = {(events["p1"], events["p2"]): "SameTopic", (events["p2"], events["p3"]): "Cause"}
    script = TheanineScript({word: [event] for word, event in events.items()}, steps)
    memory = make(llm=ScriptedLLM(script), refine=False, k=2, j=4)
    live(memory, *(session(word, name=f"s{n}", start=days(n)) for n, word in enumerate(events)))
    recall = memory.recall(
        session("Olga minds her grandchildren all day and reads to children", name="q", start=days(9))
    )
    recalls = {
        hit.unit.text for hit in memory.search("User: Olga minds her grandchildren all day and reads to children", 2)
    }
    assert events["p2"] not in recalls
    assert events["p2"] in recall.text
    kids, nurse = recall.text.split("\n\n")
    assert kids == f"2 March 2026: {events['p0']}"
    assert [line.split(": ")[1] for line in nurse.split("\n")] == [events["p1"], events["p2"], events["p3"]]


ODD = [
    session("안녕하세요, 저는 서울에 살아요", "반갑습니다", name="korean"),
    session("🎂🐕", "🎉", name="emoji"),
    session("one turn only", name="one"),
    Session("named", tuple(replace(turn, speaker="Kim") for turn in turns("I am Kim", "so am I", session="named"))),
    Session("alone", tuple(replace(turn, role="user") for turn in turns("one", "two", "three", session="alone"))),
    session(*(f"turn {n}" for n in range(500)), name="long"),
    session("words without an end " * 3000, "ok", name="wide"),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.id)
@pytest.mark.parametrize("reasoning", [False, True])
def test_odd_sessions_are_remembered_like_any_other(odd: Session, reasoning: bool) -> None:
    memory = make(reasoning=reasoning)
    before = session("I have a dog", "nice", name="before", start=START - timedelta(days=7))
    changes = live(memory, before, odd)
    assert make(reasoning=reasoning).end_session(before) == changes[: _of_session(changes, "before")]
    assert any(isinstance(change, AddUnit) and change.unit.session == odd.id for change in changes)
    assert memory.recall(odd) == memory.recall(odd)
    assert memory.recall(odd).text


def test_an_empty_session_changes_nothing_and_recalls_nothing() -> None:
    memory = make(llm=ScriptedLLM(lambda prompt: pytest.fail(f"{prompt.name} is not to be asked")))
    assert memory.end_session(session()) == []
    assert memory.recall(session("hi")).text == ""
    bank = Bank().apply([AddUnit(unit("a", "note a"), START)])
    assert make(bank, refine=False).recall(Session("none")).text == ""


def test_a_session_without_events_leaves_no_note() -> None:
    assert make(llm=ScriptedLLM(TheanineScript())).end_session(session("hm", "hm")) == []


def _of_session(changes: Sequence[Change], name: str) -> int:
    """How many of the first changes are the session's."""
    return next(n for n, change in enumerate(changes) if isinstance(change, SetNote) and change.name.endswith(name)) + 1


def test_user_words_are_no_template() -> None:
    script = TheanineScript({"{{": ["Ana wrote {{ memory }}."]})
    memory = make(llm=ScriptedLLM(script), refine=False)
    live(memory, session("{{ 7 * 7 }}, wrote Ana", name="s0"))
    assert "{{ memory }}" in memory.recall(session("Ana wrote", name="q")).text
    assert "{{ 7 * 7 }}" in text_of(script.prompts[0])


def test_a_bad_reply_to_the_summary_leaves_the_session_without_units() -> None:
    def script(prompt: Prompt) -> str:
        raise BadReply("cut")

    memory = make(llm=ScriptedLLM(script))
    assert memory.end_session(session("a", "b")) == []


def test_turns_are_shown_with_their_speakers() -> None:
    script = TheanineScript({"tea": ["Ana likes tea."]})
    past = Session("s", (Turn("s.0", "user", "Ana", "tea", START), Turn("s.1", "assistant", "Bo", "fine", START)))
    make(llm=ScriptedLLM(script)).end_session(past)
    assert "Dialogue between Ana and Bo:\n\nAna: tea\nBo: fine" in text_of(script.prompts[0])
