"""Dialogues to running text, whole sentences only."""

from collections import Counter

from localmem.llm.scripted import ScriptedLLM
from localmem.text.prose import Ask, names, summaries
from localmem.types import Prompt
from tests.fakes import turns

PROMPT = "rebot/summarize"


def test_dialogues_are_asked_about_together_and_come_back_in_order() -> None:
    batches: list[int] = []

    class Counting(ScriptedLLM):
        def generate(self, prompts):  # type: ignore[no-untyped-def]
            batches.append(len(prompts))
            return super().generate(prompts)

    llm = Counting(lambda prompt: "About tea." if "tea" in prompt.messages[-1].content else "About wine.")
    asks = [Ask(PROMPT, turns("wine", "yes")), Ask(PROMPT, turns("tea", "no"))]
    assert summaries(llm, asks, Counter()) == ["About wine.", "About tea."]
    assert batches == [2]


def test_a_long_dialogue_is_read_in_parts_whose_texts_are_joined() -> None:
    asked: list[str] = []

    def script(prompt: Prompt) -> str:
        asked.append(prompt.messages[-1].content)
        return f"Part {len(asked)}."

    said = turns(*(f"turn {n} " + "word " * 100 for n in range(40)))
    (text,) = summaries(ScriptedLLM(script, context_length=2000), [Ask(PROMPT, said)], Counter())
    assert len(asked) > 2
    assert text == " ".join(f"Part {n}." for n in range(1, len(asked) + 1))
    assert all(sum(f"turn {n} " in part for part in asked) == 1 for n in range(40))


def test_a_sentence_that_was_cut_is_left_out() -> None:
    llm = ScriptedLLM(lambda _: "This one is whole. " + "This one never ends " * 200)
    assert summaries(llm, [Ask(PROMPT, turns("a", "b"))], Counter()) == ["This one is whole."]


def test_an_empty_answer_is_counted() -> None:
    fallbacks: Counter[str] = Counter()
    assert summaries(ScriptedLLM(lambda _: "\n"), [Ask(PROMPT, turns("a"))], fallbacks) == [""]
    assert fallbacks == {PROMPT: 1}


def test_nothing_to_read_is_nothing_to_write() -> None:
    assert summaries(ScriptedLLM(lambda _: "Text."), [Ask(PROMPT, ())], Counter()) == [""]


def test_names_of_a_dialogue_of_one_side() -> None:
    assert names(turns("a")) == ("User", "the assistant")


def test_words_of_the_instructions_are_left_out() -> None:
    llm = ScriptedLLM(lambda _: "Write the summary only, and nothing that the conversation does not say. Bo sails.")
    assert summaries(llm, [Ask(PROMPT, turns("a"))], Counter()) == ["Bo sails."]
