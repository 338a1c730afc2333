"""The summarizer: what it asks, what it makes of the answers, and what it leaves out."""

import json
from collections.abc import Sequence

import pytest

from localmem.llm.scripted import ScriptedLLM
from localmem.text.summarize import Summarizer
from localmem.types import Completion, Prompt
from tests.fakes import turns


class Watching(ScriptedLLM):
    """Answers every prompt with these memories, and keeps the batches it was asked."""

    def __init__(self, *memories: object) -> None:
        super().__init__(lambda _: json.dumps({"memories": list(memories)}), context_length=2048)
        self.batches: list[list[Prompt]] = []

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.batches.append(list(prompts))
        return super().generate(prompts)


def test_repeats_blanks_and_what_holds_no_word_are_left_out() -> None:
    summarize = Summarizer(Watching("User has  a dog.", "User has a dog.", " ", "...", "🎉", "개가 있어요", 7))
    assert summarize(turns("a", "b")) == ["User has a dog.", "개가 있어요"]


def test_the_instructions_are_no_memory() -> None:
    llm = Watching("User is here today.")
    summarize = Summarizer(llm, prompt="carecall/summarize")
    (kept,) = summarize.each(turns("a"), [{"about": "User"}])
    assert kept == ["User is here today."]
    line = next(line for line in llm.batches[0][0].messages[0].content.splitlines() if len(line.split()) > 5)
    assert Summarizer(Watching(line), prompt="carecall/summarize").each(turns("a"), [{"about": "User"}]) == [[]]


def test_several_inputs_and_several_parts_are_one_call_and_come_back_apart() -> None:
    def script(prompt: Prompt) -> str:
        asked = prompt.messages[-1].content
        about = asked.rsplit(" ", 1)[-1].removesuffix(":")
        return json.dumps({"memories": [f"{about} said {n}" for n in range(60) if f"line {n}." in asked]})

    llm = Watching()
    llm._script = script
    found = Summarizer(llm, prompt="carecall/summarize").each(
        turns(*(f"line {n}. " + "word " * 40 for n in range(60))), [{"about": "User"}, {"about": "Assistant"}]
    )
    assert len(llm.batches) == 1
    assert len(llm.batches[0]) > 2
    assert len(llm.batches[0]) % 2 == 0
    assert found == [[f"User said {n}" for n in range(60)], [f"Assistant said {n}" for n in range(60)]]


def test_a_part_that_cannot_be_used_gives_none_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    def script(prompt: Prompt) -> str:
        return '{"memories": ["cut' if "line 0." in prompt.messages[-1].content else '{"memories": ["User spoke."]}'

    llm = Watching()
    llm._script = script
    summarize = Summarizer(llm)
    assert summarize(turns(*(f"line {n}. " + "word " * 40 for n in range(60)))) == ["User spoke."]
    assert summarize.fallbacks == {"memory_retrieval/summarize": 1}
    assert "memory_retrieval/summarize" in caplog.text


def test_no_turns_ask_nothing() -> None:
    llm = Watching("User spoke.")
    assert Summarizer(llm)([]) == []
    assert llm.batches == []
