"""CREEM: insights blended from memory and dialogue, judged, committed once the reply was given."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal

import pytest

from localmem.bank import Bank
from localmem.chat.conversation import Conversation
from localmem.chat.responder import Speakers
from localmem.errors import BadReply
from localmem.factory import Parts
from localmem.grounding.gate import Gate
from localmem.llm.base import LLM
from localmem.llm.scripted import Script, ScriptedLLM
from localmem.memory import Memory
from localmem.prompts import load
from localmem.retrieval.base import Retriever
from localmem.systems.creem import Blender, Creem, CreemOptions, Statements
from localmem.types import (
    AddUnit,
    Change,
    Exchange,
    Hide,
    JsonSchema,
    MarkUnit,
    Prompt,
    RefuseText,
    RetireUnit,
    Role,
    Session,
    Turn,
    Unit,
)
from tests.fakes import START, BatchRecorder, MemoryJournal, WordRetriever, obedient, session, turns


def _creem(
    llm: LLM,
    *,
    bank: Bank | None = None,
    refine: bool = True,
    before_reply: bool = True,
    speakers: Literal["user", "both"] = "user",
    retriever: Retriever | None = None,
) -> Creem:
    options = CreemOptions(
        k=5, count=2, first=5, longest=200, tokens=1024, refine=refine, before_reply=before_reply, speakers=speakers
    )
    return Creem(Parts(llm, lambda: retriever or WordRetriever(), WordRetriever), options, bank)


def make(bank: Bank | None = None, llm: LLM | None = None) -> Memory:
    return _creem(llm or ScriptedLLM(obedient), bank=bank, speakers="both")


def _insight(text: str, operation: str = "New", *remove: str) -> dict[str, object]:
    return {"insight": text, "operation": operation, "remove": list(remove)}


def _script(
    *insights: dict[str, object],
    first: Sequence[str] = (),
    question: str = "What does the user like?",
    prompts: list[Prompt] | None = None,
) -> Script:
    def script(prompt: Prompt) -> str:
        if prompts is not None:
            prompts.append(prompt)
        return {
            "creem/question": question,
            "creem/blend": json.dumps({"insights": insights}),
            "creem/first": json.dumps({"memories": list(first)}),
            "creem/respond": "I see.",
        }[prompt.name]

    return script


def _memory(name: str, text: str, role: Role = "user", time: int = 0) -> Unit:
    moment = START - timedelta(days=9 - time)
    return Unit(f"s0/{role}/{name}", text, text, "insight", role.title(), "s0", (f"s0.{name}",), moment, moment)


def _bank(*units: Unit) -> Bank:
    return Bank().apply(AddUnit(unit, unit.learned) for unit in units)


def _added_texts(changes: Sequence[Change]) -> list[str]:
    return [change.unit.text for change in changes if isinstance(change, AddUnit)]


def _retirements(changes: Sequence[Change]) -> list[tuple[str, str]]:
    return [(change.unit, change.reason) for change in changes if isinstance(change, RetireUnit)]


def _says(prompt: Prompt) -> str:
    return prompt.messages[-1].content


# -- the paper's episode -------------------------------------------------------------------------------------------


def test_the_hair_episode_gives_two_insights_about_the_speaker_and_a_reply_that_sees_them() -> None:
    """CREEM, Table 6: after a talk about dyed hair, the memory is two insights about the one who is answered."""
    bank = _bank(
        _memory("0", "Gerda wants to colour her hair silver one day.", time=1),
        _memory("1", "Gerda asks her grandchildren before she changes her hair.", time=2),
        _memory("2", "Gerda drives a small van.", time=3),
        _memory("3", "Gerda has never coloured her hair.", time=4),
    )
    curious = "Gerda is open to new hair colours and has her eye on silver."
    family = "Gerda trusts her grandchildren's taste when it comes to her hair."
    prompts: list[Prompt] = []
    script = _script(
        _insight(curious, "Updated", "M1", "M3"),
        _insight(family, "Redundant", "M2"),
        question="Who advises Gerda about her hair before she decides ?",
        prompts=prompts,
    )
    llm = ScriptedLLM(script)
    journal = MemoryJournal()
    agent = Conversation(memory=_creem(llm, bank=bank), llm=llm, journal=journal, speakers=Speakers("Gerda"))
    agent.log_turns("I have had my hair coloured at last before the summer!", START, "s1")
    agent.log_turns(
        "A strip of hair on each side and she picked it, my granddaughter.", START + timedelta(minutes=1), "s1"
    )
    for _ in agent.reply("s1"):
        pass

    question, blend, reply = prompts
    assert [prompt.name for prompt in prompts] == ["creem/question", "creem/blend", "creem/respond"]
    assert "picked it, my granddaughter.\n\nQuestion about Gerda:" in _says(question)
    # what was found: memories and turns of the dialogue, five in all; the van is not about hair
    lines = _says(blend).splitlines()
    assert [text for text in lines if text.startswith("M")] == [
        "M1 (22 February 2026): Gerda wants to colour her hair silver one day.",
        "M2 (23 February 2026): Gerda asks her grandchildren before she changes her hair.",
        "M3 (25 February 2026): Gerda has never coloured her hair.",
    ]
    assert "Now, Gerda: I have had my hair coloured at last before the summer!" in lines
    assert sum(text.startswith(("M", "Now,")) for text in lines) == 5
    # the reply sees the two insights and no sentence of the old memory
    assert f"About Gerda:\n- {curious}\n- {family}" in _says(reply)
    assert "drives a small van" not in _says(reply)
    # committed with the reply
    (_, changes) = journal.commits[-1]
    assert _added_texts(changes) == [curious, family]
    assert _retirements(changes) == [("s0/user/0", "Updated"), ("s0/user/3", "Updated"), ("s0/user/1", "Redundant")]
    assert {unit.text for unit in agent.memory.bank.live()} == {curious, family, "Gerda drives a small van."}
    assert isinstance(agent.memory, Creem)
    assert agent.memory.operations == {"Updated": 1, "Redundant": 1}


# -- the steps -----------------------------------------------------------------------------------------------------


def test_a_first_session_is_read_at_its_end_with_five_insights_asked_for() -> None:
    prompts: list[Prompt] = []
    memory = _creem(ScriptedLLM(_script(first=["Likes tea.", "Has a dog."], prompts=prompts)))
    talk = session("I like tea and my dog.", "Nice.")
    assert memory.recall(talk).text == ""
    assert prompts == []
    changes = memory.end_session(talk)
    assert _added_texts(changes) == ["Likes tea.", "Has a dog."]
    (prompt,) = prompts
    assert "At most 5 insights about User:" in _says(prompt)
    (first, _) = (change.unit for change in changes if isinstance(change, AddUnit))
    assert first.sources == ("s1.0", "s1.1")
    assert first.kind == "insight"
    assert first.speaker == "User"
    assert memory.operations == Counter()


def test_recall_changes_nothing_and_observe_commits_what_it_proposed() -> None:
    memory = _creem(ScriptedLLM(_script(_insight("Tea at night.", "Updated", "M1"))), bank=_bank(_memory("0", "Tea.")))
    dialogue = session("No tea in the morning any more.", "I see.", name="s2", start=START)
    before = memory.bank
    recall = memory.recall(Session("s2", dialogue.turns[:1]))
    assert memory.bank is before
    changes = memory.observe(Exchange(dialogue.turns[0], dialogue.turns[1], recall))
    assert changes == list(recall.proposed)
    add, mark, retire = changes
    assert isinstance(add, AddUnit)
    assert isinstance(mark, MarkUnit)
    assert isinstance(retire, RetireUnit)
    assert (retire.unit, retire.by, retire.reason) == ("s0/user/0", add.unit.id, "Updated")
    assert add.unit.sources == ("s2.0", "s0.0")  # the turn that was said, and what the memory came from
    assert add.unit.session == "s2"
    assert add.time == dialogue.turns[0].time


def test_speakers_have_memories_of_their_own_and_are_asked_about_together() -> None:
    prompts: list[Prompt] = []
    bank = _bank(_memory("0", "The user likes tea."), _memory("1", "The assistant likes coffee.", "assistant"))
    llm = BatchRecorder(_script(_insight("More."), prompts=prompts))
    memory = _creem(llm, bank=bank, speakers="both")
    recall = memory.recall(session("What do you like?", name="s2"))
    calls = [[prompt.name for prompt in batch] for batch in llm.batches]
    assert calls == [["creem/question"] * 2, ["creem/blend"] * 2]
    user, assistant = (_says(prompt) for prompt in prompts[2:])
    assert "The user likes tea." in user
    assert "coffee" not in user
    assert "coffee" in assistant
    assert "The user likes tea." not in assistant
    assert [change.unit.speaker for change in recall.proposed if isinstance(change, AddUnit)] == ["User", "Assistant"]
    assert len({change.unit.id for change in recall.proposed if isinstance(change, AddUnit)}) == 2


def test_the_schema_names_the_memories_that_were_shown_and_no_others() -> None:
    prompts: list[Prompt] = []
    bank = _bank(*(_memory(str(n), f"fact {n} user like") for n in range(9)))
    _creem(ScriptedLLM(_script(_insight("More."), prompts=prompts)), bank=bank).recall(session("hello", name="s2"))
    form = prompts[-1].format
    assert isinstance(form, JsonSchema)
    schema = json.loads(json.dumps(form.schema))
    fields = schema["properties"]["insights"]["items"]["properties"]
    assert fields["operation"] == {"enum": ["New", "Redundant", "Updated"]}
    assert fields["remove"]["items"] == {"enum": ["M1", "M2", "M3", "M4", "M5"]}
    assert schema["properties"]["insights"]["maxItems"] == 2


def test_where_only_the_dialogue_was_found_nothing_can_be_removed() -> None:
    prompts: list[Prompt] = []
    llm = ScriptedLLM(_script(_insight("More."), prompts=prompts))
    Blender(llm, count=2, longest=99, refine=True, fallbacks=Counter()).blend(
        [Statements("User", [], turns("hi"))], Gate(turns("hi"), Counter())
    )
    form = prompts[0].format
    assert isinstance(form, JsonSchema)
    assert "remove" not in json.dumps(form.schema)
    assert "Redundant" not in json.dumps(form.schema)


@pytest.mark.parametrize(
    "insight", [_insight("Tea at night.", "New", "M1"), _insight("Tea at night.", "Updated"), _insight("x", "Else")]
)
def test_an_insight_that_contradicts_itself_is_new_and_counted(insight: dict[str, object]) -> None:
    memory = _creem(ScriptedLLM(_script(insight)), bank=_bank(_memory("0", "Tea.")))
    proposed = memory.recall(session("hm", name="s2")).proposed
    assert _retirements(proposed) == []
    assert [change.mark for change in proposed if isinstance(change, MarkUnit)] == ["operation/New"]
    assert memory.fallbacks["creem/blend"] == (0 if insight["operation"] == "Else" else 1)


def test_a_memory_is_removed_once_and_a_known_sentence_not_added_again() -> None:
    script = _script(_insight("Tea at night.", "Updated", "M1"), _insight("Tea, but late.", "Redundant", "M1", "M2"))
    bank = _bank(_memory("0", "Tea.", time=0), _memory("1", "A dog.", time=1))
    memory = _creem(ScriptedLLM(script), bank=bank)
    assert _retirements(memory.recall(session("hm", name="s2")).proposed) == [
        ("s0/user/0", "Updated"),
        ("s0/user/1", "Redundant"),
    ]
    again = _creem(ScriptedLLM(_script(_insight("A dog."))), bank=bank)
    assert again.recall(session("hm", name="s2")).proposed == ()


def test_an_example_of_the_prompt_is_no_insight() -> None:
    example = "Tom prefers quiet evenings with a book to parties."
    assert example in load("creem/blend").sections["system"]
    memory = _creem(ScriptedLLM(_script(_insight(example), _insight("Real."))), bank=_bank(_memory("0", "Tea.")))
    assert _added_texts(memory.recall(session("hm", name="s2")).proposed) == ["Real."]


def _failing(name: str) -> Callable[[Prompt], str]:
    def script(prompt: Prompt) -> str:
        if prompt.name == name:
            raise BadReply(f"{name} was cut")
        return _script(_insight("Tea at night."))(prompt)

    return script


def test_without_an_insight_the_reply_sees_what_was_found() -> None:
    memory = _creem(ScriptedLLM(_failing("creem/blend")), bank=_bank(_memory("0", "Tea.")))
    recall = memory.recall(session("hm", name="s2"))
    assert recall.text == "About User:\n- Tea."
    assert recall.proposed == ()
    assert [hit.unit.text for hit in recall.hits] == ["Tea."]
    assert memory.fallbacks == {"creem/blend": 1}


@pytest.mark.parametrize("script", [_failing("creem/question"), _script(_insight("Tea at night."), question=" ")])
def test_without_a_question_what_was_said_last_is_searched_with(script: Script) -> None:
    searched: list[str] = []

    class Listening(WordRetriever):
        def search(self, queries, k, scope=None):  # type: ignore[no-untyped-def]
            searched.extend(queries)
            return super().search(queries, k, scope)

    bank = _bank(_memory("0", "Tea."))
    memory = _creem(ScriptedLLM(script), bank=bank, speakers="both", retriever=Listening())
    memory.recall(session("Tea or coffee?", name="s2"))
    assert set(searched) == {"Tea or coffee?"}
    assert memory.fallbacks == {"creem/question": 1}


# -- settings ------------------------------------------------------------------------------------------------------


def test_without_refinement_nothing_is_judged_or_removed() -> None:
    prompts: list[Prompt] = []
    script = _script(_insight("Tea at night.", "Updated", "M1"), prompts=prompts)
    memory = _creem(ScriptedLLM(script), bank=_bank(_memory("0", "Tea.")), refine=False)
    proposed = memory.recall(session("hm", name="s2")).proposed
    assert [type(change) for change in proposed] == [AddUnit]
    assert "Redundant" not in prompts[-1].messages[0].content
    form = prompts[-1].format
    assert isinstance(form, JsonSchema)
    assert "operation" not in json.dumps(form.schema)


def test_without_blending_before_the_reply_it_sees_past_sessions_and_the_end_blends_every_exchange() -> None:
    llm = BatchRecorder(_script(_insight("Tea at night.", "Updated", "M1")))
    memory = _creem(llm, bank=_bank(_memory("0", "Tea.")), before_reply=False)
    talk = session(*"abcdef", name="s2")
    recall = memory.recall(Session("s2", talk.turns[:1]))
    assert recall.text == "About User:\n- Tea."
    assert recall.proposed == ()
    llm.batches.clear()
    changes = memory.end_session(talk)
    assert llm.sizes == [3, 3]
    assert _added_texts(changes) == ["Tea at night."]  # three times the same
    assert _retirements(changes) == [("s0/user/0", "Updated")]


def test_an_exchange_that_left_no_insight_is_blended_at_the_end() -> None:
    """Its reply was cut off, made by another program, or logged before a crash."""
    texts = iter(["Tea at night.", "Tea at noon.", "Tea at dawn."])
    llm = ScriptedLLM(
        lambda prompt: json.dumps({"insights": [_insight(next(texts))]}) if prompt.name == "creem/blend" else "what?"
    )
    memory = _creem(llm, bank=_bank(_memory("0", "Tea.")))
    talk = session("a", "b", "c", "d", "e", name="s2")
    recall = memory.recall(Session("s2", talk.turns[:1]))
    memory.apply(memory.observe(Exchange(talk.turns[0], talk.turns[1], recall)))
    assert memory.end_session(session("a", "b", name="s2")) == []
    assert _added_texts(memory.end_session(talk)) == ["Tea at noon.", "Tea at dawn."]


def test_an_insight_that_was_refused_is_not_asked_for_again() -> None:
    memory = _creem(ScriptedLLM(_script(_insight("(empty)"))), bank=_bank(_memory("0", "Tea.")))
    talk = session("a", "b", name="s2")
    changes = memory.observe(Exchange(talk.turns[0], talk.turns[1], memory.recall(Session("s2", talk.turns[:1]))))
    memory.apply(changes)
    assert [type(change) for change in changes] == [RefuseText]
    assert memory.end_session(talk) == []


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_an_insight_that_is_edited_stays_about_its_side(role: Role) -> None:
    llm = ScriptedLLM(_script(_insight("x"), first=["Likes tea."]))
    memory = _creem(llm, speakers="both", before_reply=False)
    memory.apply(memory.end_session(session("a", "b")))
    old = next(unit for unit in memory.bank.live() if unit.speaker == role.title())
    memory.apply([AddUnit(replace(old, id="edit-1", text="Likes coffee.", key="Likes coffee."), START)])
    memory.apply([Hide(old.id, "edit-1", START)])
    sides = dict(
        zip(("user", "assistant"), memory.recall(session("coffee?", name="s2")).text.split("\n\n"), strict=True)
    )
    assert sides.pop(role) == f"About {role.title()}:\n- Likes coffee."
    assert [*sides.values()] == [f"About {'User' if role == 'assistant' else 'Assistant'}:\n- Likes tea."]


# -- edges ---------------------------------------------------------------------------------------------------------


def test_a_turn_that_is_answered_twice_is_committed_once() -> None:
    answers = iter(["One.", "Two."])
    llm = ScriptedLLM(
        lambda prompt: json.dumps({"insights": [_insight(next(answers))]}) if prompt.name == "creem/blend" else "what?"
    )
    memory = _creem(llm, bank=_bank(_memory("0", "Tea.")))
    dialogue = session("hm", "I see.", name="s2").turns
    for _ in range(2):
        recall = memory.recall(Session("s2", dialogue[:1]))
        memory.apply(memory.observe(Exchange(dialogue[0], dialogue[1], recall)))
    assert [unit.text for unit in memory.bank.live()] == ["Tea.", "One."]


def test_a_memory_that_is_gone_by_the_time_of_the_reply_is_left_out() -> None:
    script = ScriptedLLM(_script(_insight("Tea at night.", "Updated", "M1")))
    memory = _creem(script, bank=_bank(_memory("0", "Tea.")))
    dialogue = session("hm", "I see.", name="s2").turns
    recall = memory.recall(Session("s2", dialogue[:1]))
    memory.catch_up(Bank())
    assert _retirements(memory.observe(Exchange(dialogue[0], dialogue[1], recall))) == []


def test_observe_without_a_recall_changes_nothing() -> None:
    first, second = turns("a", "b")
    assert _creem(ScriptedLLM(obedient)).observe(Exchange(first, second)) == []


def test_two_speakers_with_one_name_keep_two_memories() -> None:
    memory = _creem(ScriptedLLM(obedient), speakers="both")
    one_name = tuple(replace(turn, speaker="Kim") for turn in turns("I am Kim.", "So am I."))
    memory.apply(memory.end_session(Session("s1", one_name)))
    assert {unit.speaker for unit in memory.bank.live()} == {"Kim (user)", "Kim (assistant)"}


def test_a_memory_added_by_hand_belongs_to_the_user() -> None:
    note = Unit("note-1", "Allergic to nuts.", "Allergic to nuts.", "note", "", "by-hand", (), START, START)
    prompts: list[Prompt] = []
    memory = _creem(ScriptedLLM(_script(_insight("More."), prompts=prompts)), bank=_bank(note), speakers="both")
    question = Turn("s2.0", "user", "Ana", "What may I eat?", START)
    memory.recall(Session("s2", (question,)))
    assert "Allergic to nuts." in _says(prompts[-1])
    assert _says(prompts[-1]).endswith("insights about Ana.")


def test_operations_are_read_from_the_bank() -> None:
    memory = _creem(ScriptedLLM(_script(_insight("Tea at night.", "Updated", "M1"), _insight("A cat."))))
    memory.catch_up(_bank(_memory("0", "Tea.")))
    agent = Conversation(memory=memory, llm=ScriptedLLM(lambda _: "I see."))
    agent.chat("hm", START)
    assert memory.operations == {"Updated": 1, "New": 1}
    assert _creem(ScriptedLLM(obedient), bank=memory.bank).operations == memory.operations
