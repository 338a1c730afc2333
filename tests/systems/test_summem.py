"""SumMem: the past is kept as it was said and summarised for each request."""

import json
from datetime import timedelta

import pytest

from localmem.bank import Bank
from localmem.factory import Parts
from localmem.llm.base import LLM
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.summem import SumMem, SumMemOptions
from localmem.types import AddUnit, JsonSchema, Prompt, Session
from tests.fakes import START, BatchRecorder, WordRetriever, obedient, session


def make(bank: Bank | None = None, llm: LLM | None = None, parts: int = 8) -> SumMem:
    options = SumMemOptions(sentences=8, longest=200, parts=parts)
    return SumMem(Parts(llm or ScriptedLLM(obedient), WordRetriever), options, bank)


def _query(text: str = "what is my cat called?") -> Session:
    return session(text, name="now", start=START + timedelta(days=9))


def _live(memory: SumMem, *sessions: Session) -> None:
    for past in sessions:
        memory.apply(memory.end_session(past))


def test_the_summary_is_made_for_the_request() -> None:
    prompts: list[Prompt] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt)
        return json.dumps({"memories": ["User's cat is called Tom.", " User's cat is  called Tom. "]})

    memory = make(llm=ScriptedLLM(script))
    _live(memory, session("my cat is Tom", "sweet", name="s1"))
    assert prompts == [], "nothing is worked out when a session ends"
    recall = memory.recall(_query())
    assert recall.text == "User's cat is called Tom."
    assert [hit.unit.sources for hit in recall.hits] == [("s1.0",), ("s1.1",)]
    text = prompts[0].messages[-1].content
    assert text.index("2 March 2026\nUser: my cat is Tom") < text.index("what is my cat called?")
    assert isinstance(prompts[0].format, JsonSchema)


def test_a_long_past_is_read_in_parts_asked_at_once_newest_parts_only() -> None:
    prompts: list[str] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt.messages[-1].content)
        return json.dumps({"memories": ["User said word."] if "talk 39 " in prompts[-1] else []})

    llm = BatchRecorder(script, context_length=2500)
    memory = make(llm=llm, parts=2)
    _live(memory, *(session(f"talk {n} " + "word " * 100, "ok", name=f"s{n}") for n in range(40)))
    recall = memory.recall(_query())
    assert llm.sizes == [2]
    assert not any("talk 0 " in text for text in prompts)
    assert recall.text == "User said word."
    assert {hit.unit.text for hit in recall.hits} > {"Assistant: ok"}
    assert all(hit.unit.session != "s0" for hit in recall.hits)
    assert memory.fallbacks == {"summem/summarize": 1}


def test_nothing_that_helps_is_nothing_to_say() -> None:
    memory = make(llm=ScriptedLLM(lambda _: '{"memories": []}'))
    _live(memory, session("my cat is Tom", "sweet"))
    recall = memory.recall(_query("what is seven times six?"))
    assert (recall.text, recall.hits) == ("", ())


def test_an_answer_that_cannot_be_used_is_counted() -> None:
    memory = make(llm=ScriptedLLM(lambda _: '{"memories"'))
    _live(memory, session("my cat is Tom", "sweet"))
    assert memory.recall(_query()).text == ""
    assert memory.fallbacks == {"summem/summarize": 1}


def test_an_empty_past_is_not_asked_about() -> None:
    memory = make(llm=ScriptedLLM(lambda _: pytest.fail("nothing is to be asked")))
    assert memory.end_session(session()) == []
    assert memory.recall(_query()).text == ""


def test_a_session_is_kept_turn_by_turn() -> None:
    changes = make().end_session(session("a", "b", "c"))
    assert [change.unit.text for change in changes if isinstance(change, AddUnit)] == [
        "User: a",
        "Assistant: b",
        "User: c",
    ]
