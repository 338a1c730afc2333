"""Keep Me Updated over whole lives: after each session the memory is what Algorithm 1 leaves, line by line.

tests/systems/test_memory_update.py compares every small table of labels; here are the summary, the classifier and the
bank around it.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from random import Random

import pytest

from localmem.classification import OPERATIONS, Operation, OperationLabel
from localmem.config import system_options
from localmem.factory import Parts
from localmem.llm.scripted import ScriptedLLM
from localmem.systems.carecall import CareCall, CareCallOptions
from localmem.types import Prompt
from tests.fakes import WordRetriever
from tests.systems.fidelity.lives import SEEDS, life


def _operation(memory: str, sentence: str) -> Operation:
    if memory == sentence:
        return "PASS"
    return OPERATIONS[sha256(f"{memory}/{sentence}".encode()).digest()[0] % len(OPERATIONS)]


class Classifier:
    """Labels by the two texts alone."""

    def classify(self, pairs: Sequence[tuple[str, str]]) -> list[OperationLabel]:
        return [OperationLabel(_operation(*pair), dict.fromkeys(OPERATIONS, 0.25)) for pair in pairs]


def _script(prompt: Prompt) -> str:
    lines = prompt.inputs["dialogue"].splitlines()
    return json.dumps({"memories": [line.removeprefix("User: ") for line in lines if line.startswith("User: ")]})


def _algorithm_1(memory: list[str], summary: list[str]) -> list[str]:
    m_del, s_del = set(), set()
    for m in memory:
        for s in summary:
            if _operation(m, s) in ("REPLACE", "DELETE"):
                m_del.add(m)
            if _operation(m, s) == "DELETE":
                s_del.add(s)
    remaining = [m for m in memory if m not in m_del]
    for s in summary:
        for m in remaining:
            if _operation(m, s) == "PASS":
                s_del.add(s)
    return [*remaining, *(s for s in summary if s not in s_del)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_memory_after_each_session_is_algorithm_1s(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Random labels are not to be believed: the check of PASS by words is ours, and told at the head of the module.
    monkeypatch.setattr("localmem.systems.carecall.doubtful_passes", lambda pairs, _: [False] * len(pairs))
    options = CareCallOptions.model_validate(system_options("carecall", {"classifier": "here"}))
    system = CareCall(Parts(ScriptedLLM(_script), WordRetriever, load_classifier=lambda _: Classifier()), options)
    memory: list[str] = []
    for past in life(Random(seed), sessions=6):
        system.apply(system.end_session(past))
        summary = list(dict.fromkeys(turn.text for turn in past.turns if turn.role == "user"))
        memory = _algorithm_1(memory, summary)
        assert [unit.text for unit in system.bank.live()] == memory
