"""All memories and ReBot: everything that was written down is shown."""

import json
from datetime import timedelta
from typing import Literal

import pytest

from localmem.bank import Bank
from localmem.config import load_settings
from localmem.factory import SYSTEMS, Parts, memory
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.systems.all_memories import AllMemories, AllMemoriesOptions, ReBot, ReBotOptions
from localmem.types import AddUnit, Change, Prompt, RetireUnit, Session, Unit
from tests.fakes import START, BatchRecorder, WordRetriever, obedient, session

BACKBONE = ReBotOptions(summarizer=None)


def make(
    bank: Bank | None = None, llm: LLM | None = None, each: Literal["session", "utterance"] = "session"
) -> AllMemories:
    llm = llm or ScriptedLLM(obedient)
    return AllMemories(Parts(llm, WordRetriever), AllMemoriesOptions(each=each, longest=160, summarizer=None), bank)


def _units(changes: list[Change]) -> list[Unit]:
    return [change.unit for change in changes if isinstance(change, AddUnit)]


def _query() -> Session:
    return session("hello", name="now", start=START + timedelta(days=9))


def _live(memory: Memory, *sessions: Session) -> None:
    for past in sessions:
        memory.apply(memory.end_session(past))


def test_every_sentence_is_shown_whatever_is_asked() -> None:
    sentences = iter([["User sails.", "User has a cat."], ["User has a cat.", "User moved."]])
    all_memories = make(llm=ScriptedLLM(lambda _: json.dumps({"memories": next(sentences)})))
    _live(all_memories, session("a", "b", name="s1"), session("c", "d", name="s2", start=START + timedelta(days=1)))
    recall = all_memories.recall(_query())
    assert recall.text == "2 March 2026: User sails.\n2 March 2026: User has a cat.\n3 March 2026: User moved."
    assert len(recall.hits) == 3


@pytest.mark.parametrize("system", ["all_memories", "rebot"])
def test_what_does_not_fit_is_left_out_from_the_oldest_on(system: str) -> None:
    def script(prompt: Prompt) -> str:
        number = prompt.messages[-1].content.partition("talk ")[2].split()[0]
        sentence = f"User told story {number} " + "and what it was about at some length and with feeling, once."
        return sentence if prompt.name == "rebot/summarize" else json.dumps({"memories": [sentence]})

    llm = ScriptedLLM(script, context_length=1400)
    remembering = make(llm=llm) if system == "all_memories" else ReBot(Parts(llm, WordRetriever), BACKBONE)
    _live(remembering, *(session(f"talk {n} of it", name=f"s{n}") for n in range(50)))
    recall = remembering.recall(_query())
    assert 0 < len(recall.hits) < 50
    assert recall.hits[-1].unit.session == "s49"
    assert remembering.fallbacks == {"agent/respond": 1}


# -- a persona sentence for each utterance (SumMem-MSC) ----------------------------------------------------------------


def _persona(prompt: Prompt) -> str:
    message = prompt.messages[-1].content.partition("Message:\n")[2].partition("\n\nAbout: ")[0]
    memories = [f"{message.partition(':')[0]} owns a boat."] if "boat" in message else []
    return json.dumps({"memories": memories})


def test_each_utterance_gives_a_sentence_about_its_speaker_or_none() -> None:
    llm = BatchRecorder(_persona)
    by_utterance = make(llm=llm, each="utterance")
    past = session("I have a boat", "I have a boat too", "good morning", "as I said, the boat")
    units = _units(by_utterance.end_session(past))
    assert [(unit.text, unit.speaker, unit.sources) for unit in units] == [
        ("User owns a boat.", "User", ("s1.0",)),
        ("Assistant owns a boat.", "Assistant", ("s1.1",)),
    ]
    assert llm.sizes == [4], "all utterances go out together"


def test_an_utterance_whose_answer_cannot_be_used_gives_none() -> None:
    by_utterance = make(llm=ScriptedLLM(lambda _: '{"facts": []}'), each="utterance")
    assert by_utterance.end_session(session("I have a boat", "ah")) == []
    assert by_utterance.fallbacks == {"all_memories/persona": 2}


# -- with memory update ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, count", [("all_memories/updated", 9), ("memory_retrieval/updated", 6)])
def test_the_variants_with_memory_update(name: str, count: int) -> None:
    """Ten facts, one of which a later session replaces."""
    facts = iter([[f"User has hobby {n}." for n in range(9)], [], ["User gave up hobby 3."], []])

    def script(prompt: Prompt) -> str:
        if prompt.name == "carecall/summarize":
            return json.dumps({"memories": next(facts)})
        return "REPLACE" if "Remembered: User has hobby 3." in prompt.messages[-1].content else "APPEND"

    settings = load_settings(flags={"system": name})
    updated = memory(settings, Parts(ScriptedLLM(script), WordRetriever))
    _live(updated, session("a", "b", name="s1"))
    changes = updated.end_session(session("c", "d", name="s2", start=START + timedelta(days=1)))
    assert [change.reason for change in changes if isinstance(change, RetireUnit)] == ["REPLACE"]
    updated.apply(changes)
    text = updated.recall(_query()).text
    assert len(text.splitlines()) == count
    assert "has hobby 3" not in text


# -- ReBot -------------------------------------------------------------------------------------------------------------


def test_a_session_becomes_one_summary_about_nobody_in_particular() -> None:
    rebot = ReBot(Parts(ScriptedLLM(lambda _: "They spoke of boats. The user\nbought one."), WordRetriever), BACKBONE)
    (unit,) = _units(rebot.end_session(session("I bought a boat", "well done")))
    assert unit.text == "They spoke of boats. The user bought one."
    assert unit.speaker == ""
    assert unit.sources == ("s1.0", "s1.1")


def test_an_empty_summary_leaves_no_unit() -> None:
    llm = ScriptedLLM(lambda _: " ")
    rebot = ReBot(Parts(llm, WordRetriever), BACKBONE)
    assert rebot.end_session(session("a", "b")) == []
    assert rebot.fallbacks == {"rebot/summarize": 1}


def test_an_empty_session_changes_nothing() -> None:
    llm = ScriptedLLM(lambda _: pytest.fail("nothing is to be asked"))
    assert make(llm=llm).end_session(session()) == []
    assert make(llm=llm, each="utterance").end_session(session()) == []
    assert ReBot(Parts(llm, WordRetriever), BACKBONE).end_session(session()) == []


def test_all_baselines_are_in_the_table() -> None:
    expected = {"none", "full_history", "all_memories", "memory_retrieval", "utterance_retrieval", "exchange_retrieval"}
    expected |= {"session_retrieval", "summem", "memochat", "memorybank", "comedy", "conditionmem", "rebot"}
    assert expected <= set(SYSTEMS)
