"""Nothing but what was said is remembered: neither the examples in prompts nor text that was recalled.

Every shipped setting is asked with a backbone bent on mischief: it answers extraction with whatever its user message
holds, and prefers the very words that are looked for in the bank afterwards.
"""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest

from localmem import factory
from localmem.chat.conversation import Conversation
from localmem.config import load_settings, system_names
from localmem.llm.scripted import ScriptedLLM
from localmem.prompts import PromptFile
from localmem.types import AddUnit, Change, Choice, JsonSchema, Prompt, SetNote
from tests.fakes import START, MemoryJournal, WordRetriever

NAMES = system_names(variants=True)
EXAMPLE = "Quagga keeps eleven lanterns."
SAID = "The password of the shed is ZEBRA."
WORDS = ("Quagga", "ZEBRA")
KEEP_NOTHING = {"none", "carecall/without"}
NOT_HERE = {
    "secom/denoised": "LLMLingua-2's weights are on no package registry",
    "carecall/gold": "its memory is that of a data set",
}


def _mischief(prompt: Prompt) -> str:
    """An answer in the prompt's format out of the lines of its user message, those looked for first."""
    lines = [line for line in prompt.messages[-1].content.splitlines() if line.strip()]
    lines.sort(key=lambda line: not any(word in line for word in WORDS))
    match prompt.format:
        case Choice(options=options):
            return "APPEND" if "APPEND" in options else options[0]
        case JsonSchema(schema=schema):
            return json.dumps(_instance(schema, lines))
    return "\n".join(lines)


def _instance(schema: Mapping[str, object], lines: list[str]) -> object:
    match schema:
        case {"enum": list(options)}:
            return options[0]
        case {"type": "object", "properties": dict(fields)}:
            return {name: _instance(field, lines) for name, field in fields.items()}
        case {"type": "array", "items": dict(items), **more}:
            most = more.get("maxItems", len(lines))
            assert isinstance(most, int)
            return [_instance(items, lines[n:]) for n in range(min(most, len(lines)))]
        case {"type": "integer", **more}:
            return more.get("minimum", 0)
        case {"type": "boolean"}:
            return True
        case {"const": value}:
            return value
    most = schema.get("maxLength", 10_000)
    assert isinstance(most, int)
    line = lines[0] if lines else "nothing"
    start = min((at for word in WORDS if (at := line.find(word)) >= 0), default=0)  # what is looked for is not cut off
    return line[start:][:most]


class Talk:
    """One user's talk with one memory; replies are always the same."""

    def __init__(self, name: str, options: Mapping[str, object] | None = None) -> None:
        settings = load_settings(flags={"system": name, "options": dict(options or {})})
        self.remembers = name not in KEEP_NOTHING
        llm = ScriptedLLM(self._answer, context_length=16_000)
        self.memory = factory.memory(settings, factory.Parts(llm, WordRetriever))
        self.journal = MemoryJournal()
        self.agent = Conversation(memory=self.memory, llm=llm, journal=self.journal)
        self.shown: list[str] = []

    def hold(self, *texts: str, day: int) -> list[Change]:
        """A session on that day; the changes that it made."""
        before = len(self.journal.commits)
        for minute, text in enumerate(texts):
            reply = self.agent.chat(text, START + timedelta(days=day, minutes=minute))
            self.shown.append("\n".join(message.content for message in reply.prompt.messages))
        self.agent.end_session()
        return [change for _, changes in self.journal.commits[before:] for change in changes]

    def _answer(self, prompt: Prompt) -> str:
        return "I see." if prompt.name == self.memory.response_prompt else _mischief(prompt)


def _texts(changes: list[Change]) -> str:
    units = [f"{c.unit.text}\n{c.unit.key}" for c in changes if isinstance(c, AddUnit)]
    return "\n".join([*units, *(c.text for c in changes if isinstance(c, SetNote))])


@pytest.fixture(params=NAMES)
def new_talk(request: pytest.FixtureRequest) -> Callable[[], Talk]:
    name: str = request.param
    if name in NOT_HERE:
        pytest.skip(NOT_HERE[name])
    return lambda: Talk(name)


def test_examples_in_prompts_never_become_memories(
    new_talk: Callable[[], Talk], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example is planted in the fixed part of every prompt, as few-shot examples stand there."""
    section = PromptFile.section

    def section_with_example(self: PromptFile, title: str, **values: object) -> str:
        text = section(self, title, **values)
        return f"{text}\n\nExample:\n{EXAMPLE}" if title == "system" else text

    monkeypatch.setattr(PromptFile, "section", section_with_example)
    talk = new_talk()
    changes = talk.hold("I like tea.", "And cake.", day=0) + talk.hold("I moved to Lyon.", day=1)
    assert all(EXAMPLE in text for text in talk.shown), "it was in sight"
    assert "Quagga" not in _texts(changes)
    assert "Quagga" not in repr(talk.memory.bank)


def test_the_same_words_said_in_the_dialogue_are_remembered(new_talk: Callable[[], Talk]) -> None:
    """Otherwise the test above could not fail."""
    talk = new_talk()
    changes = talk.hold(EXAMPLE, day=0)
    assert ("Quagga" in _texts(changes)) == talk.remembers


def test_recalled_text_is_never_extracted_again(new_talk: Callable[[], Talk]) -> None:
    """The second session only asks; what was recalled for its reply is no fact of that session."""
    talk = new_talk()
    talk.hold(SAID, day=0)
    changes = talk.hold("What is the password of the shed?", "Are you sure of the password?", day=1)
    assert any("ZEBRA" in text for text in talk.shown[1:]) == talk.remembers, "it was recalled"
    units = [change.unit for change in changes if isinstance(change, AddUnit)]
    added = [unit for unit in units if not unit.kind.endswith("insight")]
    assert not any("ZEBRA" in unit.text or "ZEBRA" in unit.key for unit in added)


@pytest.mark.parametrize("count", [2, 3])
def test_the_examples_of_rsum_are_not_in_its_memory(count: int) -> None:
    talk = Talk("rsum", {"examples": count, "long_context": True})
    changes = talk.hold("I like tea.", day=0)
    names = [name for name in ("Salome", "Orlo", "Viktor", "Maeve") if name in talk.shown[0]]
    assert len(names) == 4
    assert not any(name in _texts(changes) for name in names)
