"""Memory stays where it was shown, so that a prompt begins as the one before, and is shown once."""

import itertools
from datetime import timedelta

import pytest

from localmem.chat.conversation import Conversation
from localmem.chat.responder import ShownMemory
from localmem.llm.scripted import ScriptedLLM
from localmem.memory import Memory
from localmem.types import Change, Message, Prompt, Recall, Session, Turn
from tests.fakes import START, session


class Told(Memory):
    """Recalls what the test says."""

    name = "told"
    now = ""

    def recall(self, session: Session) -> Recall:
        return Recall(self.now)

    def end_session(self, session: Session) -> list[Change]:
        return []


def talking(*, context_length: int = 8192, memory_position: str = "last") -> tuple[Conversation, Told, list[Prompt]]:
    asked: list[Prompt] = []

    def script(prompt: Prompt) -> str:
        asked.append(prompt)
        return "I see."

    memory, llm = Told(), ScriptedLLM(script, context_length=context_length)
    return Conversation(memory=memory, llm=llm, memory_position=memory_position), memory, asked


def told(agent: Conversation, memory: Told, recalled: str, text: str) -> None:
    memory.now = recalled
    agent.chat(text, START)


@pytest.mark.parametrize(("context_length", "words", "turns"), [(65536, 1000, 4), (2000, 200, 5)])
def test_memory_stays_until_it_is_4096_tokens_or_half_of_the_context(
    context_length: int, words: int, turns: int
) -> None:
    agent, memory, asked = talking(context_length=context_length)
    for turn in range(turns + 2):
        told(agent, memory, " ".join([f"fact-{turn}"] * words), "And?")
    assert "fact-0" in str(asked[turns].messages)
    assert "fact-0" not in str(asked[turns + 1].messages)


def test_a_prompt_begins_with_the_one_before_and_shows_only_new_memory() -> None:
    agent, memory, asked = talking()
    told(agent, memory, "1 May: Bruno is a dog.\n2 May: Tom is a cat.", "Hello.")
    told(agent, memory, "1 May: Bruno is a dog.\n3 May: Ida is a hen.", "And now?")
    told(agent, memory, "3 May: Ida is a hen.\n1 May: Bruno is a dog.", "Still there?")
    for before, after in itertools.pairwise(asked):
        assert after.messages[: len(before.messages)] == before.messages
        assert after.messages[len(before.messages)] == Message("assistant", "I see.")
    first, second, third = (prompt.messages[-1].content for prompt in asked)
    assert "Bruno" in first
    assert "Tom" in first
    assert first.endswith("\n\nHello.")
    assert "Ida" in second
    assert "Bruno" not in second
    assert second.endswith("\n\nAnd now?")
    assert third == "Still there?"


def test_a_new_session_is_shown_all_again() -> None:
    agent, memory, asked = talking()
    told(agent, memory, "1 May: Bruno is a dog.", "Hello.")
    agent.close()
    told(agent, memory, "1 May: Bruno is a dog.", "Hello again.")
    assert "Bruno" in asked[-1].messages[-1].content


def test_memory_in_the_system_message_changes_with_each_turn() -> None:
    agent, memory, asked = talking(memory_position="system")
    told(agent, memory, "1 May: Bruno is a dog.", "Hello.")
    told(agent, memory, "1 May: Bruno is a dog.", "And now?")
    assert "Bruno" in asked[-1].messages[0].content
    assert [message.content for message in asked[-1].messages[1:]] == ["Hello.", "I see.", "And now?"]


def test_a_dialogue_that_is_cut_is_shown_all_again() -> None:
    """The first prompt's memory may be among what was cut from the second."""
    agent, memory, asked = talking(context_length=400)
    told(agent, memory, "1 May: Bruno is a dog.", "Hello.")
    told(agent, memory, "1 May: Bruno is a dog.", "word " * 200)
    told(agent, memory, "1 May: Bruno is a dog.", "And now?")
    assert "Bruno" not in asked[-2].messages[-1].content
    assert "Bruno" in asked[-1].messages[-1].content


def test_an_answer_that_is_written_nowhere_leaves_nothing_in_place() -> None:
    agent, memory, asked = talking()
    memory.now = "1 May: Bruno is a dog."
    said = session("Hello.", "Hi.", "And now?")
    agent.responder.answer(said)
    agent.responder.answer(said)
    assert asked[0].messages == asked[1].messages


def test_memory_past_the_budget_starts_afresh() -> None:
    shown = ShownMemory(lambda texts: [len(text.split()) for text in texts], budget=lambda: 5)
    turns = tuple(Turn(f"s.{n}", "user", "Ann", f"say {n}", START + timedelta(minutes=n)) for n in range(3))
    dialogues = [Session("s", turns[: n + 1]) for n in range(3)]
    shown.record(dialogues[0], "one two three", "one two three\n\nsay 0")
    assert shown.content("s", turns[0]) == "one two three\n\nsay 0"
    assert shown.select_new(dialogues[1], "one two three\nfour") == "four"
    shown.record(dialogues[1], "four five six", "four five six\n\nsay 1")
    assert shown.content("s", turns[0]) == "say 0"
    assert shown.select_new(dialogues[2], "one two three") == "one two three"


def test_paragraphs_stay_whole_and_an_edited_turn_is_shown_as_it_is_now() -> None:
    shown = ShownMemory(lambda texts: [len(text.split()) for text in texts], budget=lambda: 50)
    dialogue = session("Hello.", "Hi.", "And now?")
    first = Session(dialogue.id, dialogue.turns[:1])
    shown.record(first, "1 May\nAnn: I have a dog.\n\n2 May\nAnn: Nice.", "1 May ...\n\nHello.")
    assert shown.select_new(dialogue, "2 May\nAnn: I have a dog.\n\n2 May\nAnn: Nice.") == "2 May\nAnn: I have a dog."
    edited = Turn(first.turns[0].id, "user", "Ann", "Good evening.", START)
    assert shown.content(dialogue.id, edited) == "Good evening."
