"""CREEM against its Algorithm 1: question, top 5 of memory and dialogue, blending, removal, then the insights.

The paper has a memory for each speaker; the comparison follows the user's. The LLM is a function of what it is shown.
"""

import json
import re
from hashlib import sha256
from random import Random

import pytest

from localmem.chat.conversation import Conversation
from localmem.config import system_options
from localmem.factory import Parts
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.creem import Creem, CreemOptions
from localmem.types import Prompt
from tests.fakes import WordRetriever
from tests.systems.fidelity.lives import SEEDS, life, shared_words

K, FIRST = 5, 5


def _insights(memories: list[str], statements: list[str]) -> list[tuple[str, list[str]]]:
    """Two insights: one from the newest statement, which removes a memory or none, and the newest memory again."""
    number = sha256("/".join([*memories, *statements]).encode()).digest()[0]
    removed = [memories[number % len(memories)]] if memories and number % 3 else []
    return [(statements[-1], removed)] if statements else []


def _script(prompt: Prompt) -> str:
    if prompt.name == "creem/first":
        lines = [line.removeprefix("User: ") for line in prompt.inputs["dialogue"].splitlines() if "User: " in line]
        return json.dumps({"memories": lines[:FIRST]})
    if prompt.name == "creem/question":
        return prompt.inputs["dialogue"].rpartition(": ")[2]
    if prompt.name != "creem/blend":
        return f"reply {sha256(repr(prompt.messages).encode()).hexdigest()[:8]}"
    text = prompt.inputs["statements"]
    labels = {memory: label for label, memory in re.findall(r"^(M\d+) \([^)]*\): (.*)$", text, re.MULTILINE)}
    statements = re.findall(r"^Now, \w+: (.*)$", text, re.MULTILINE)
    return json.dumps({"insights": [
        {"insight": insight, "operation": "Updated" if removed else "New", "remove": [labels[each] for each in removed]}
        for insight, removed in _insights(list(labels), statements)
    ]})  # fmt: skip


def _refine(memory: list[str], dialogue: list[str], question: str) -> list[str]:
    """One turn of Algorithm 1. Both texts and turns are searched together; ties go to what was there first."""
    sources = [*((text, True) for text in memory), *((text, False) for text in dialogue)]
    places = sorted(range(len(sources)), key=lambda n: -shared_words(question, sources[n][0]))[:K]
    nearest = [sources[n] for n in sorted(places)]
    for insight, removed in _insights([t for t, past in nearest if past], [t for t, past in nearest if not past]):
        if insight in memory and not removed:
            continue  # told at the head of the module
        memory = [*(text for text in memory if text not in removed), insight]
    return memory


@pytest.mark.parametrize("seed", SEEDS)
def test_the_memory_after_each_turn_is_algorithm_1s(seed: int) -> None:
    options = CreemOptions.model_validate(system_options("creem", {"speakers": "user", "k": K, "first": FIRST}))
    llm = ScriptedLLM(_script)
    agent = Conversation(memory=Creem(Parts(llm, WordRetriever), options), llm=llm)
    first, *later = life(Random(seed))
    agent.writer.read([first])
    memory = list(dict.fromkeys(turn.text for turn in first.turns if turn.role == "user"))[:FIRST]
    assert [unit.text for unit in agent.memory.bank.live()] == memory
    for past in later:
        dialogue: list[str] = []
        for turn in past.turns[::2]:
            dialogue.append(turn.text)
            memory = _refine(memory, dialogue, turn.text)
            dialogue.append(agent.chat(turn.text, turn.time).turn.text)
            assert [unit.text for unit in agent.memory.bank.live()] == memory
        agent.end_session()
