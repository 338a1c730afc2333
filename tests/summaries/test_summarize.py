"""The summarizer: what it asks, what it makes of the answers, and what it leaves out."""

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from localmem.grounding.gate import Gate
from localmem.llm.scripted import ScriptedLLM
from localmem.summaries.summarize import Summarizer, SummaryRequest, summarize_all
from localmem.types import Completion, Prompt
from tests.fakes import BatchRecorder, turns


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
    (sentences,) = summarize.each(turns("a"), [{"about": "User"}])
    assert sentences == ["User is here today."]
    line = next(line for line in llm.batches[0][0].messages[0].content.splitlines() if len(line.split()) > 5)
    assert Summarizer(Watching(line), prompt="carecall/summarize").each(turns("a"), [{"about": "User"}]) == [[]]


def test_several_inputs_and_several_parts_are_one_call_and_come_back_apart() -> None:
    def script(prompt: Prompt) -> str:
        question = prompt.messages[-1].content
        about = question.rsplit(" ", 1)[-1].removesuffix(":")
        return json.dumps({"memories": [f"{about} said {n}" for n in range(60) if f"line {n}." in question]})

    llm = Watching()
    llm._script = script
    summaries = Summarizer(llm, prompt="carecall/summarize").each(
        turns(*(f"line {n}. " + "word " * 40 for n in range(60))), [{"about": "User"}, {"about": "Assistant"}]
    )
    assert len(llm.batches) == 1
    assert len(llm.batches[0]) > 2
    assert len(llm.batches[0]) % 2 == 0
    assert summaries == [[f"User said {n}" for n in range(60)], [f"Assistant said {n}" for n in range(60)]]


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


# -- running text


PROMPT = "rebot/summarize"


def _gate(fallbacks: Counter[str] | None = None) -> Gate:
    return Gate(turns("a"), Counter() if fallbacks is None else fallbacks)


def test_dialogues_are_asked_about_together_and_come_back_in_order() -> None:
    llm = BatchRecorder(lambda prompt: "About tea." if "tea" in prompt.messages[-1].content else "About wine.")
    asks = [SummaryRequest(PROMPT, turns("wine", "yes")), SummaryRequest(PROMPT, turns("tea", "no"))]
    assert summarize_all(llm, asks, _gate()) == ["About wine.", "About tea."]
    assert llm.sizes == [2]


def test_a_long_dialogue_is_read_in_parts_whose_texts_are_joined() -> None:
    prompts: list[str] = []

    def script(prompt: Prompt) -> str:
        prompts.append(prompt.messages[-1].content)
        return f"Part {len(prompts)}."

    dialogue = turns(*(f"turn {n} " + "word " * 100 for n in range(40)))
    (text,) = summarize_all(ScriptedLLM(script, context_length=2000), [SummaryRequest(PROMPT, dialogue)], _gate())
    assert len(prompts) > 2
    assert text == " ".join(f"Part {n}." for n in range(1, len(prompts) + 1))
    assert all(sum(f"turn {n} " in part for part in prompts) == 1 for n in range(40))


def test_a_sentence_that_was_cut_is_left_out() -> None:
    llm = ScriptedLLM(lambda _: "This one is whole. " + "This one never ends " * 200)
    assert summarize_all(llm, [SummaryRequest(PROMPT, turns("a", "b"))], _gate()) == ["This one is whole."]


def test_an_empty_answer_is_counted() -> None:
    fallbacks: Counter[str] = Counter()
    assert summarize_all(ScriptedLLM(lambda _: "\n"), [SummaryRequest(PROMPT, turns("a"))], _gate(fallbacks)) == [""]
    assert fallbacks == {PROMPT: 1}


def test_nothing_to_read_is_nothing_to_write() -> None:
    assert summarize_all(ScriptedLLM(lambda _: "Text."), [SummaryRequest(PROMPT, ())], _gate()) == [""]


def test_words_of_the_instructions_are_left_out() -> None:
    llm = ScriptedLLM(lambda _: "Write the summary only, and nothing that the conversation does not say. Bo sails.")
    assert summarize_all(llm, [SummaryRequest(PROMPT, turns("a"))], _gate()) == ["Bo sails."]
