"""What degenerates in a weak backbone never becomes memory, whichever system asked: loops, examples of the prompt, and
one statement many times. The backbone here answers every extraction with all three.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import cycle, islice

import pytest

from localmem import factory
from localmem.chat.conversation import Conversation
from localmem.config import load_settings, system_names
from localmem.grounding.gate import normalise
from localmem.llm.scripted import ScriptedLLM
from localmem.text.parse import sentences
from localmem.types import Choice, JsonSchema, Prompt
from tests.fakes import START, MemoryJournal, WordRetriever, instance, session

LOOP = "The user sails, the user sails, the user sails, the user sails, the user sails."
TRUE = "The user sails a boat on the lake every weekend."
VERBATIM = {
    "full_history",
    "utterance_retrieval",
    "exchange_retrieval",
    "session_retrieval",
    "secom",
    "evidence",
    "none",
}


def _examples(prompt: Prompt) -> list[str]:
    """Sentences of the instructions that speak of somebody, as a weak model gives them back."""
    instructions = prompt.messages[0].content
    quoted = re.findall(r'"([A-Z][^"{}]{15,})"', instructions)
    lines = re.findall(r"^[A-Z]\w+: (.{15,})$", instructions, re.MULTILINE)
    return [*quoted, *lines]


def _texts(prompt: Prompt) -> Iterator[str]:
    return cycle([LOOP, *_examples(prompt)[:2], TRUE, TRUE])


def _answer(prompt: Prompt) -> str:
    texts = _texts(prompt)
    match prompt.format:
        case _ if prompt.name.endswith("/respond"):
            return "Fine."
        case Choice(options=options):
            return "APPEND" if "APPEND" in options else options[0]
        case JsonSchema(schema=schema):
            return json.dumps(instance(schema, texts))
    return "\n".join(f"- {text}" for text in islice(texts, 8))


@pytest.mark.parametrize("name", [name for name in system_names() if name not in VERBATIM])
def test_neither_loops_nor_examples_nor_repeats_become_memory(name: str) -> None:
    settings, prompts = load_settings(flags={"system": name}), list[Prompt]()

    def script(prompt: Prompt) -> str:
        prompts.append(prompt)
        return _answer(prompt)

    llm = ScriptedLLM(script)
    memory = factory.memory(settings, factory.Parts(llm, WordRetriever))
    agent = Conversation(memory=memory, llm=llm, journal=MemoryJournal())
    agent.writer.read([session("I sail a boat on the lake every weekend.", "Lovely.", "It is old.", "Nice.")])
    agent.chat("What do I do on the lake?", START.replace(year=2027))
    agent.end_session()
    bank = memory.bank
    texts = [*bank.notes.values(), *(unit.text for unit in bank.live() if unit.kind != "exchange")]
    stored = [normalise(each) for text in texts for each in sentences(text)]
    examples = {normalise(each) for prompt in prompts for text in _examples(prompt) for each in sentences(text)}
    assert not examples & {*stored}
    assert not any(normalise(LOOP) in text for text in stored)
    units = Counter((unit.kind, unit.speaker, unit.session, normalise(unit.text)) for unit in bank.live())
    lines = Counter((name, normalise(each)) for name, note in bank.notes.items() for each in sentences(note))
    assert max([*units.values(), *lines.values()]) == 1
