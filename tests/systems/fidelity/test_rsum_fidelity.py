"""LLM-Rsum against equations 2 and 3 of its section 3.2: M_i = LLM(H_i, M_{i-1}), and the reply sees M_i alone."""

from random import Random

import pytest

from localmem.llm.scripted import ScriptedLLM
from localmem.systems.rsum import RecursiveSummary
from localmem.types import Prompt
from tests.fakes import session
from tests.systems.fidelity.lives import SEEDS, life

LIMIT = 20  # sentences


def _summarise(dialogue: list[str], memory: list[str]) -> list[str]:
    """The LLM: what is new goes first, so that the limit cuts what is old."""
    return [*dict.fromkeys([*dialogue, *memory])]


def _script(prompt: Prompt) -> str:
    dialogue = [line.partition(": ")[2] for line in prompt.inputs["dialogue"].splitlines()]
    return "\n".join(f"- {each}" for each in _summarise(dialogue, prompt.inputs["memory"].splitlines()))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_memory_is_the_recursion_of_the_paper(seed: int) -> None:
    system = RecursiveSummary(llm=ScriptedLLM(_script), limit=LIMIT)
    memory: list[str] = []  # M_0 is empty
    for past in life(Random(seed), sessions=6, exchanges=6):
        system.apply(system.end_session(past))
        memory = _summarise([turn.text for turn in past.turns], memory)[:LIMIT]
        assert system.recall(session("apple?", name="q")).text.splitlines() == memory
    assert not system.bank.units
