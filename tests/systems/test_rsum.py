"""LLM-Rsum: the note is rewritten from itself and the session, in at most 20 sentences."""

import pytest

from localmem.llm.scripted import ScriptedLLM
from localmem.systems.rsum import RecursiveSummary
from localmem.types import Prompt, SetNote
from tests.fakes import session


def _text(prompt: Prompt) -> str:
    return "\n".join(message.content for message in prompt.messages)


def test_the_new_memory_comes_from_the_old_one_and_the_session() -> None:
    asked: list[str] = []

    def script(prompt: Prompt) -> str:
        asked.append(_text(prompt))
        return f"The user said things {len(asked)} times."

    memory = RecursiveSummary(llm=ScriptedLLM(script))
    assert memory.recall(session("hi")).text == ""
    for name in ("s1", "s2"):
        changes = memory.end_session(session(f"I like tea in {name}", "noted", name=name))
        assert [type(change) for change in changes] == [SetNote]
        memory.apply(changes)
    assert "I like tea in s1" in asked[0]
    assert "I like tea in s2" in asked[1]
    assert "The user said things 1 times." in asked[1]
    assert "I like tea in s1" not in asked[1]
    assert memory.recall(session("hi")).text == "The user said things 2 times."


def test_no_more_than_the_limit_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    memory = RecursiveSummary(llm=ScriptedLLM(lambda _: " ".join(f"Fact number {n}." for n in range(30))))
    memory.apply(memory.end_session(session("a", "b")))
    kept = memory.recall(session("hi")).text.splitlines()
    assert len(kept) == 20
    assert kept[0] == "Fact number 0."
    assert "30 sentences" in caplog.text


def test_an_empty_answer_keeps_the_old_memory(caplog: pytest.LogCaptureFixture) -> None:
    answers = iter(["The user likes tea.", "  "])
    memory = RecursiveSummary(llm=ScriptedLLM(lambda _: next(answers)))
    memory.apply(memory.end_session(session("tea", "ok")))
    assert memory.end_session(session("nothing", "ok", name="s2")) == []
    assert "came back empty" in caplog.text


def test_a_session_longer_than_the_context_is_read_in_parts_in_order() -> None:
    asked: list[str] = []

    def script(prompt: Prompt) -> str:
        asked.append(_text(prompt))
        return f"Part {len(asked)} was read."

    long = session(*(f"turn {n} " + "word " * 200 for n in range(40)))
    memory = RecursiveSummary(llm=ScriptedLLM(script, context_length=3000))
    memory.apply(memory.end_session(long))
    assert len(asked) > 1
    for n in range(40):
        assert sum(f"turn {n} " in text for text in asked) == 1
    assert "Part 1 was read." in asked[1]


def test_an_empty_session_changes_nothing() -> None:
    memory = RecursiveSummary(llm=ScriptedLLM(lambda _: pytest.fail("nothing is to be asked")))
    assert memory.end_session(session()) == []
