"""Stages answered by quotations: nothing is said that was not, formats are kept, and the backbone is not asked."""

import json
from collections.abc import Sequence
from datetime import timedelta

import pytest

from localmem.bank import Bank
from localmem.config import system_options
from localmem.errors import BadSettings
from localmem.factory import SYSTEMS
from localmem.llm.scripted import ScriptedLLM
from localmem.prompts import render
from localmem.summaries.grounded_stages import GroundedParts, GroundedStages
from localmem.summaries.statements import StatementSelector
from localmem.systems import Parts
from localmem.types import Choice, Message, Prompt, Session, Turn
from tests.fakes import START, WordEncoder, WordRetriever, session
from tests.summaries.test_statements import model

FIRST = session("My son is called Rui. Nice weather.", "I see.", "I live in Porto.", "Lovely.")
SECOND = session("I live in Faro now.", "Oh.", name="s2")
FREE = Prompt("free", (Message("user", "hello"),))
ASKING = [name for name, system in SYSTEMS.items() if system.asks_llm and name != "evidence"]


def replace_towns(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return ["REPLACE" if all("I live in" in text for text in pair) else "APPEND" for pair in pairs]


def refuse(prompt: Prompt) -> str:
    raise BadSettings(f"{prompt.name} asked the backbone")


def stages() -> GroundedStages:
    encoder = WordEncoder()
    parts = GroundedParts(
        encoder, StatementSelector(encoder, model()), replace_towns, lambda texts: [range(len(texts))]
    )
    return GroundedStages(ScriptedLLM(refuse), lambda: parts)


def parts_of(llm: GroundedStages) -> Parts:
    return Parts(
        llm,
        WordRetriever,
        load_classifier=lambda _: pytest.fail("no classifier"),
        load_reranker=lambda _: pytest.fail("no reranker"),
        load_segmenter=lambda _: pytest.fail("no segmenter"),
        load_compressor=lambda _: pytest.fail("no compressor"),
    )


@pytest.mark.parametrize("name", ASKING)
def test_every_system_remembers_only_what_was_said_and_asks_no_backbone(name: str) -> None:
    options = system_options(name, {})
    if "classifier" in options:
        options["classifier"] = None
    memory = SYSTEMS[name].new_memory(parts_of(stages()), options, Bank())
    for each in (FIRST, SECOND):
        memory.apply(memory.end_session(each))
    recall = memory.recall(session("Where do I live?", name="s3"))
    remembered = " ".join([unit.text for unit in memory.bank.live()] + [*memory.bank.notes.values(), recall.text])
    assert "I live in" in remembered
    log = " ".join(turn.text for each in (FIRST, SECOND) for turn in each.turns)
    quoted = [part.split('"', 1)[0] for part in remembered.split('said: "')[1:]]
    assert all(text in log for text in quoted)
    assert not memory.fallbacks


def answer(name: str, **inputs: object) -> str:
    return stages().generate([render(name, form=None, **inputs)])[0].text


def test_a_rewritten_summary_drops_what_is_outdated_and_repeats_nothing() -> None:
    memory = 'Ana said: "I live in Porto."\nAna said: "My son is Rui."'
    dialogue = "Ana: I live in Faro now. My son is Rui.\nTom: I like my cat."
    assert answer("rsum/update", memory=memory, dialogue=dialogue, limit=5).splitlines() == [
        '- Ana said: "My son is Rui."',
        '- Ana said: "I live in Faro now."',
    ]
    assert answer("rsum/update", memory=memory, dialogue=dialogue, limit=1) == '- Ana said: "I live in Faro now."'


ASSISTANT_FIRST = Session(
    "s1",
    (
        Turn("s1.0", "assistant", "Ada", "I am Ada, my job is to help.", START),
        Turn("s1.1", "user", "Ana", "Here are my plans:\nTown: I live in Faro\nMy cat is ill.", START),
    ),
)


@pytest.mark.parametrize("name", ["rsum", "memochat", "conditionmem", "summem"])
def test_what_is_quoted_is_the_users_whoever_begins_and_all_lines_of_it(name: str) -> None:
    memory = SYSTEMS[name].new_memory(parts_of(stages()), system_options(name, {}), Bank())
    memory.apply(memory.end_session(session("I have a boat.", "Nice.", name="s0")))
    memory.apply(memory.end_session(ASSISTANT_FIRST))
    question = session("Is my cat ill?", name="s2", start=START + timedelta(days=1))
    units = [unit.text for unit in memory.bank.live() if unit.kind not in ("utterance", "exchange")]
    text = "\n".join([memory.recall(question).text, *units, *memory.bank.notes.values()])
    assert 'Ana said: "My cat is ill."' in text
    assert 'Town said: "' not in text
    if name != "summem":  # which summarises both sides
        assert 'Ada said: "' not in text


def test_a_chronicle_is_continued_by_whole_quotations() -> None:
    text = answer("memorybank/events", before='A said: "x. y." A said: "z."', news="2 May: n", user="A", assistant="B")
    assert text.splitlines() == ['- A said: "x. y."', '- A said: "z."', "- 2 May: n"]


def test_an_insight_names_what_it_updates() -> None:
    statements = 'M1 (2 May 2026): Ana said: "I live in Porto."\nNow, Ana: Well:\nI live in Faro.\nNow, Ada: I see.'
    (insight,) = json.loads(answer("creem/blend", statements=statements, speaker="Ana", count=2, refine=True))[
        "insights"
    ]
    assert insight == {"insight": 'Ana said: "I live in Faro."', "operation": "Updated", "remove": ["M1"]}


def test_operations_are_decided_by_the_part_in_one_call() -> None:
    pairs = [("I live in A", "I live in B"), ("I live in A", "My dog")]
    form = Choice(("REPLACE", "APPEND"))
    prompts = [render("carecall/operation", form=form, memory=old, sentence=new) for old, new in pairs]
    assert [completion.text for completion in stages().generate(prompts)] == ["REPLACE", "APPEND"]


def test_other_prompts_go_to_the_backbone_in_their_place() -> None:
    llm = GroundedStages(ScriptedLLM(lambda prompt: prompt.name), lambda: pytest.fail("not needed"))
    prompts = [render("carecall/fuse", memories=["a"], sentence="b"), FREE]
    assert [completion.text for completion in llm.generate(prompts)] == ['{"loses": false, "sentence": ""}', "free"]
    assert "".join(llm.stream(FREE)) == "free"
    assert "".join(llm.stream(prompts[0])) == '{"loses": false, "sentence": ""}'
